"""The process from which Spark forks its Python workers: it imports once what every worker needs."""

from __future__ import annotations

import numpy  # noqa: F401
import pyarrow.parquet  # noqa: F401
from pyspark import daemon

import runnel.streaming.match_job  # noqa: F401
from runnel.matching.warm import warm_up

if __name__ == "__main__":
    warm_up()
    daemon.manager()
