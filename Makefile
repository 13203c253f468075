PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin

.DEFAULT_GOAL := help
.PHONY: help setup demo test check docs lock crash clean

help:  ## say what there is
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

setup: $(VENV)/.ready  ## make .venv from the lock files

$(VENV)/.ready: pyproject.toml requirements/build.lock requirements/dev.lock
	@echo "== setting up $(VENV) (a few minutes the first time) =="
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Runnel needs Python 3.11 or newer; set PYTHON=")'
	$(PYTHON) -m venv $(VENV)
	$(RUN)/pip install --quiet --require-hashes -r requirements/build.lock
	$(RUN)/pip install --quiet --require-hashes --no-build-isolation -r requirements/dev.lock
	$(RUN)/pip install --quiet --no-deps --no-build-isolation -e .
	@touch $@

lock:  ## make the lock files anew (needs uv)
	uv pip compile requirements/build.in --universal --generate-hashes --no-emit-index-url --no-header --python-version 3.11 -o requirements/build.lock
	uv pip compile pyproject.toml --group dev --universal --generate-hashes --no-emit-index-url --no-header --python-version 3.11 -o requirements/dev.lock

clean:  ## remove what was made here
	rm -rf $(VENV) demo-root .mypy_cache .ruff_cache .pytest_cache .hypothesis
