"""Joins in a workspace: windows that are filled, stored, merged and rebuilt match as the reference evaluator does."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tests.integration.gated_runs import match_somehow, verify
from tests.integration.in_process import InProcess
from tests.unit.matching.gates.gated_worlds import SOURCES, START, logged

import runnel
from runnel.catalog.logs import windows
from runnel.engine import Engine
from runnel.engine.upkeep.maintenance import run_maintenance
from runnel.testing import FakeClock

SHOWN = "create feed Shown from News as $n join last 3 days on Photos as $photos with $n[title similar window.title];"
SETUP = f"register feed News; register feed Photos; {SHOWN} subscribe to Shown output log;"

_ATOMS = (
    "title similar window.title",
    "item similar window.title at least 1",
    "price = window.price",
    "title = window.item",
    "title contains window.title",
)
conditions = st.one_of(
    st.sampled_from(_ATOMS),
    st.tuples(st.sampled_from(_ATOMS), st.sampled_from(["and", "or"]), st.sampled_from(_ATOMS)).map(" ".join),
    st.sampled_from(_ATOMS).map(lambda atom: f"{atom} and not price < window.price"),
    st.sampled_from(_ATOMS).map(lambda atom: f"{atom} and price < 4"),
)
extents = st.sampled_from(["1 items", "3 items", "12 hours", "1 days", "2 days", "5 days"])


@st.composite
def joined_feeds(draw: st.DrawFn) -> list[str]:
    """Statements that create feeds with joins, views over them, and `distinct` above and below them."""
    statements: list[str] = []
    names = list(SOURCES.values())
    for number in range(draw(st.integers(1, 4))):
        primary, secondary = draw(st.sampled_from(names)), draw(st.sampled_from(names))
        source = (
            f"({primary} as $p | {draw(st.sampled_from(names))}) as $all"
            if draw(st.booleans())
            else f"{primary} as $all"
        )
        joined = "$p" if "$p" in source and draw(st.booleans()) else "$all"
        joins = "".join(
            f" join last {draw(extents)} on {secondary} as $w{join} with {joined}[{draw(conditions)}]"
            for join in range(draw(st.integers(1 if number == 0 else 0, 2)))
        )
        distinct = " distinct by title within 2 days" if draw(st.integers(0, 3)) == 0 else ""
        where = " where $w0[price < 6]" if "$w0" in joins and draw(st.booleans()) else ""
        statements.append(f"create feed F{number} from {source}{joins}{distinct}{where};")
        names.append(f"F{number}")
    return statements


@pytest.fixture(scope="module", autouse=True)
def _without_waiting_for_the_disk() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("runnel.storage.file_storage.os.fsync", lambda handle: None)
        yield


@pytest.fixture
def engine(tmp_path: Path, clock: FakeClock) -> Iterator[Engine]:
    with runnel.connect(tmp_path / "workspace", clock=clock) as opened:
        yield opened


def texts(*titles: str, **attributes: Any) -> list[dict[str, Any]]:
    return [{"id": title, "title": title, **attributes} for title in titles]


def files_of_windows(engine: Engine) -> list[windows.WindowSegment]:
    with engine.workspace.catalog.read() as connection:
        return windows.live_segments(connection)


def filled_windows(engine: Engine) -> list[windows.FilledWindow]:
    with engine.workspace.catalog.read() as connection:
        return list(windows.filled_windows(connection).values())


def damage(engine: Engine, how: str) -> None:
    """Overwrite or delete a file of windows."""
    for segment in files_of_windows(engine)[:1]:
        path = engine.workspace.storage.local(segment.path)
        if how == "deleted":
            path.unlink(missing_ok=True)
        elif path.exists():
            path.write_bytes(b"x" * path.stat().st_size)


@settings(deadline=None, max_examples=40, phases=[Phase.explicit, Phase.generate])
@given(data=st.data())
def test_any_batches_merges_and_damage_give_the_matches_of_the_definition(data: st.DataObject) -> None:
    """Feeds are declared before, between and after items; batches are repeated; files are merged and damaged."""
    statements = data.draw(joined_feeds())
    items = data.draw(logged())
    declared_at = [data.draw(st.integers(0, len(items))) for _ in statements]
    clock = FakeClock(START)
    with (
        pytest.MonkeyPatch.context() as patch,
        tempfile.TemporaryDirectory() as folder,
        runnel.connect(Path(folder) / "workspace", clock=clock) as engine,
    ):
        patch.setattr("runnel.streaming.window_store._FAN_IN", 2)
        engine.execute(" ".join(f"register feed {name};" for name in SOURCES.values()))
        run = InProcess(engine, slice_items=data.draw(st.integers(1, 5)))
        before, declared = START, 0
        for number, item in enumerate([*items, None]):
            while declared < len(statements) and max(declared_at[: declared + 1]) <= number:
                engine.execute(f"{statements[declared]} subscribe to F{declared} output log;")
                declared += 1
            if item is None:
                break
            match data.draw(
                st.sampled_from(["once", "died before", "again", "later", "merge", "damaged", "deleted"])
            ):
                case "merge":
                    run.match()
                    run_maintenance(engine.workspace, run.epoch, at_least=2)
                case "damaged" | "deleted" as how:
                    damage(engine, how)
                case how:
                    match_somehow(run, how)
            clock.advance(item.accepted - before)
            before = item.accepted
            values = {name: value[0] for name, value in item.attributes.items()}
            engine.publish(SOURCES[item.feed], [{"id": item.id, **values}])
        run.match()
        verify(engine)
        run.close()
