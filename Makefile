PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin
KILLS ?= 30
PARALLEL_TESTS := tests/crash tests/cluster tests/integration/test_tutorial.py tests/integration/test_two_stages.py \
  tests/unit/test_docs.py

# Tests start Spark dozens of times for a few batches each, so thorough JIT compilation does not pay.
test others crash: export SPARK_SUBMIT_OPTS := -XX:TieredStopAtLevel=1 -XX:+UseSerialGC

.DEFAULT_GOAL := help
.PHONY: help setup demo test check examples others docs crash bench lock clean

help:  ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

setup: $(VENV)/.ready  ## create .venv from the lock files

$(VENV)/.ready: pyproject.toml requirements/build.lock requirements/dev.lock
	@echo "== setting up $(VENV) from the lock files (a few minutes the first time) =="
	@$(PYTHON) -c 'import sys; sys.exit("Runnel needs Python 3.11 or newer: make PYTHON=python3.11 …" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(RUN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/build.lock
	$(RUN)/pip install --quiet --disable-pip-version-check --require-hashes --no-build-isolation -r requirements/dev.lock
	$(RUN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

demo: setup  ## match a generated world of news on Spark, with default settings
	@$(RUN)/runnel demo demo-workspace

check: setup  ## check style, types, imports and generated pages
	@echo "== ruff ==" && $(RUN)/ruff check src tests benchmarks examples scripts && $(RUN)/ruff format --check --quiet src tests benchmarks examples scripts
	@echo "== mypy ==" && $(RUN)/mypy
	@echo "== imports ==" && $(RUN)/lint-imports --no-logo
	@echo "== reference pages ==" && $(RUN)/python scripts/make_reference.py --check

test: setup  ## run everything: checks, examples in the code, and all tests
	@$(RUN)/python -m runnel.streaming.java
	@echo "== tests that start many processes run in parallel with the others (.tests-parallel.log) =="
	@$(RUN)/python -m pytest $(PARALLEL_TESTS) > .tests-parallel.log 2>&1 & parallel=$$!; \
	  $(MAKE) --no-print-directory check examples others; status=$$?; \
	  [ $$status -eq 0 ] || { kill $$parallel 2>/dev/null; wait $$parallel; exit 1; }; \
	  echo "== waiting for the parallel tests =="; wait $$parallel; parallel_status=$$?; cat .tests-parallel.log; exit $$parallel_status
	@echo "all passed; next: make demo, or docs/start/tutorial.md"

examples: setup
	@echo "== examples in the code ==" && $(RUN)/python -m pytest --doctest-modules src -p no:cacheprovider --durations=0 --durations-min=5

others: setup
	@echo "== tests ==" && $(RUN)/python -m pytest tests $(PARALLEL_TESTS:%=--ignore=%)

docs: setup  ## regenerate docs/reference and the index of docs/decisions
	@$(RUN)/python scripts/make_reference.py

crash: setup  ## kill the runner KILLS times (30 unless set) under trickled input
	@RUNNEL_KILLS=$(KILLS) $(RUN)/python -m pytest tests/crash -v

bench: setup  ## measure the pipeline, filters, factoring and operators; one JSON line per figure
	@$(RUN)/python benchmarks/pipeline.py
	@$(RUN)/python -m benchmarks.filters
	@$(RUN)/python -m benchmarks.factoring
	@$(RUN)/python -m benchmarks.operators

lock:  ## update the lock files (needs uv)
	uv pip compile requirements/build.in --universal --generate-hashes --no-emit-index-url --no-header --python-version 3.11 -o requirements/build.lock
	uv pip compile pyproject.toml --group dev --universal --generate-hashes --no-emit-index-url --no-header --python-version 3.11 -o requirements/dev.lock
	uv pip compile pyproject.toml --extra postgresql --universal --generate-hashes --no-emit-index-url --no-header --python-version 3.11 -o requirements/run.lock

clean:  ## delete .venv, caches and the demo workspace
	rm -rf $(VENV) demo-workspace .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
