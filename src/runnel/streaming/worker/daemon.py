"""The process from which Spark forks its Python workers. It imports the modules that all workers need, once."""

from __future__ import annotations

import gc

import numpy  # noqa: F401
import pyarrow.parquet  # noqa: F401
from pyspark import daemon

import runnel.streaming.worker.match_job  # noqa: F401
from runnel.matching.compile.warm_up import warm_up


def main() -> None:
    """Warm up the kernels, and then fork a worker whenever Spark requests one."""
    warm_up()
    # A worker collects garbage after every task. The objects that exist now never become garbage; without `freeze`, a
    # collection traverses all of them, which took a tenth of a second, more than matching a small batch.
    gc.collect()
    gc.freeze()
    daemon.manager()


if __name__ == "__main__":
    main()
