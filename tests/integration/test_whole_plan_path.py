"""Without partitions, the code of distributed plans is not loaded."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

DECLARED = """
register feed News; register feed Wire;
create feed Rock from News | Wire where title contains 'rock' and n > 1; subscribe to Rock output log;
create feed Jazz from News where title contains 'jazz'; subscribe to Jazz output log;
"""

PROGRAM = """
import json, sys
from pathlib import Path
from tests.integration.in_process import InProcess
from runnel.cli.doctor import examine
from runnel.engine import connect
from runnel.engine.ask.status import read_status
from runnel.engine.planning.ports import ensure_distribution, rebalance_plan, repair_distributions
from runnel.engine.planning.reoptimize import recompile_unusable, reoptimize
from runnel.engine.run.health import Health
from runnel.engine.upkeep.backup import back_up
from runnel.engine.upkeep.maintenance import run_maintenance
from runnel.web.collect_report import collect_report
from runnel.web.metrics import render_metrics
from runnel.web.report import render_report

class Run:
    def health(self):
        return Health(True, True, (), {})

folder, partitions = Path(sys.argv[1]), int(sys.argv[2])
with connect(folder / "root", partitions=partitions) as engine:
    engine.execute(sys.argv[3])
    run = InProcess(engine)
    for title in ("rock and jazz", "quiet rock", "silence"):
        engine.publish("News", [{"id": title, "title": title, "n": 2.0}])
    assert run.match() == 1
    held = run.epoch
    ensure_distribution(engine.workspace, held)
    rebalance_plan(engine.workspace, held)
    repair_distributions(engine.workspace, held)
    reoptimize(engine.workspace, held, enough=-1e9, worth_it=-1e9)
    recompile_unusable(engine.workspace, held)
    run_maintenance(engine.workspace, held, chores=True)
    back_up(engine.workspace, folder / "backup")
    matched = [len(list(engine.matches(name))) for name in ("Rock", "Jazz")]
    status = read_status(engine.workspace).to_json()
    explained = engine.explain("Rock").to_json()["partition"]
    page = render_report(collect_report(engine, "Run"))
    metrics = render_metrics(engine.workspace, Run())[0].decode()
    findings = [one.is_well for one in examine(folder / "root")]
    run.close()
print(json.dumps({
    "loaded": sorted(name for name in sys.modules if name.startswith("runnel.scaleout")),
    "matched": matched,
    "partitions": status["partitions"] and len(status["partitions"]["partitions"]),
    "explained": explained is not None,
    "reported": 'id="partitions"' in page,
    "gauges": [line for line in metrics.splitlines() if line.startswith("runnel_partitions ")],
    "well": all(findings),
}))
"""


@pytest.mark.parametrize(("setting", "partitions"), [(0, None), (2, 2)])
def test_code_of_distributed_plans_is_loaded_only_if_needed(
    tmp_path: Path, setting: int, partitions: int | None
) -> None:
    process = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path), str(setting), DECLARED],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert process.returncode == 0, process.stderr
    document = json.loads(process.stdout.splitlines()[-1])
    loaded = document.pop("loaded")
    is_distributed = partitions is not None
    assert bool(loaded) is is_distributed, loaded
    assert document == {
        "matched": [2, 1],
        "partitions": partitions,
        "explained": is_distributed,
        "reported": is_distributed,
        "gauges": [f"runnel_partitions {float(partitions or 1)}"],
        "well": True,
    }
