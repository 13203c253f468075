"""The runner of a benchmark on a cluster, as a process of its own: `python -m benchmarks.cluster_driver ROOT`.

Its settings come from the environment (`RUNNEL_MASTER` and so on). It matches all items that there are, and prints
one line of JSON: the number of bytes that went from stage to stage, as Spark reports it.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

from runnel.engine import connect


def main() -> None:
    """Run the root once."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", help="the root to run")
    root = parser.parse_args().root
    with connect(root, create=False) as engine:
        started = time.perf_counter()
        engine.run(once=True)
        from pyspark.sql import SparkSession

        session = SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()
        messages = shuffled(session.sparkContext) | {"run_seconds": time.perf_counter() - started}
    print(json.dumps(messages), flush=True)


def shuffled(context: Any) -> dict[str, int]:
    """Bytes that stages wrote for others, and of these what was read from other machines (none, where there is one).

    They are sums over all stages that Spark's status store has: the same that its pages and REST API show.
    """
    store = context._jsc.sc().statusStore()
    no_quantiles = context._gateway.new_array(context._jvm.double, 0)
    nothing = context._jvm.java.util.ArrayList()
    stages = store.stageList(nothing, False, False, no_quantiles, nothing)
    sums = {"stages": 0, "shuffle_bytes": 0, "remote_bytes": 0, "shuffle_records": 0}
    for place in range(stages.size()):
        stage = stages.apply(place)
        sums["stages"] += 1
        sums["shuffle_bytes"] += int(stage.shuffleWriteBytes())
        sums["shuffle_records"] += int(stage.shuffleWriteRecords())
        sums["remote_bytes"] += int(stage.shuffleRemoteBytesRead())
    return sums


if __name__ == "__main__":
    main()
