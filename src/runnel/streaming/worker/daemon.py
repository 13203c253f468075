"""The process from which Spark forks its Python workers: it imports once what every worker needs."""

from __future__ import annotations

import gc

import numpy  # noqa: F401
import pyarrow.parquet  # noqa: F401
from pyspark import daemon

import runnel.streaming.worker.match_job  # noqa: F401
from runnel.matching.compile.warm_up import warm_up


def main() -> None:
    """Import, warm up, and fork workers as they are asked for."""
    warm_up()
    # A worker collects garbage after every task. What is here by now is never garbage: going through all of it each
    # time took a tenth of a second, more than matching a small batch.
    gc.collect()
    gc.freeze()
    daemon.manager()


if __name__ == "__main__":
    main()
