"""Feeds with joins are declared, replaced, paused and dropped between items: each batch matches as declared then.

Batches are cut anywhere and repeated, files of windows are merged and damaged, and plans are whole or partitioned.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.integration.gated_runs import logged, match_somehow
from tests.integration.in_process import InProcess
from tests.integration.test_joins_of_workspaces import conditions, damage, extents
from tests.unit.matching.gates.gated_worlds import SOURCES, START

import runnel
from runnel.algebra.nodes.query import Node
from runnel.algebra.semantics.evaluate_log import evaluate_log
from runnel.catalog.declared import feeds
from runnel.engine import Engine
from runnel.engine.upkeep.maintenance import run_maintenance
from runnel.errors import StatementError
from runnel.testing import FakeClock

_FEEDS = 4
_GRAPH = "graph { ?s <urn:p> ?o }"


@dataclass
class Expected:
    """What the match log must contain: the queries of each item, and the annotations by query and item."""

    queries: dict[int, list[int]] = field(default_factory=dict)
    annotations: dict[tuple[int, int], dict[int, tuple[int, ...]]] = field(default_factory=dict)

    def add(self, engine: Engine, definitions: Mapping[int, Node], since: Mapping[int, int], after: int) -> None:
        """Add the items after a sequence as they match with these definitions."""
        for one in evaluate_log(logged(engine), definitions, since):
            if one.item.sequence > after:
                if one.feeds:
                    self.queries[one.item.sequence] = sorted(one.feeds)
                for feed, joined in one.annotations.items():
                    self.annotations[feed, one.item.sequence] = dict(joined)

    def verify(self, engine: Engine) -> None:
        """Assert that the match log has this and nothing else."""
        queries: dict[int, list[int]] = {}
        annotations: dict[tuple[int, int], dict[int, tuple[int, ...]]] = {}
        for rows in engine.workspace.matches.read(0, engine.workspace.items.last_sequence()):
            for row, sequence in enumerate(rows.sequences.tolist()):
                queries[sequence] = rows.queries[rows.offsets[row] : rows.offsets[row + 1]].tolist()
            for key, several in rows.annotations_of(queries).items():
                annotations[key] = {each.gate: each.newest for each in several}
        assert queries == self.queries
        assert annotations == self.annotations


@st.composite
def definition(draw: st.DrawFn, number: int) -> str:
    """Return the definition of a feed, which reads the sources and the feeds with lower numbers."""
    names = [*SOURCES.values(), *(f"F{lower}" for lower in range(number))]
    primary, other, secondary = (draw(st.sampled_from(names)) for _ in range(3))
    source = f"({primary} as $p | {other}) as $all" if draw(st.booleans()) else f"{primary} as $all"
    joined = draw(st.sampled_from(["$p", "$all"])) if "$p" in source else "$all"
    joins = "".join(
        f" join last {draw(extents)} on {secondary} as $w{join} with {joined}[{draw(conditions)}]"
        for join in range(draw(st.integers(0 if number else 1, 2)))
    )
    filters = ["price < 6", f"not {_GRAPH}", _GRAPH]
    where = f" where $w0[{draw(st.sampled_from(filters))}]" if joins and draw(st.booleans()) else ""
    return f"from {source}{joins}{where}"


@pytest.fixture(scope="module", autouse=True)
def _without_waiting_for_the_disk() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("runnel.storage.file_storage.os.fsync", lambda handle: None)
        yield


class World:
    """A workspace in which feeds change and items are published, and what its match log must contain."""

    def __init__(self, engine: Engine, clock: FakeClock, run: InProcess) -> None:
        self.engine, self.clock, self.run = engine, clock, run
        self.expected = Expected()

    def match(self, how: str) -> None:
        """Match waiting items in a certain way, and expect the result of the current definitions."""
        matched = self.engine.workspace.matches.matched_upto()
        with self.engine.workspace.catalog.read() as connection:
            definitions, since = feeds.definitions(connection), feeds.since_of(connection)
        if how == "merge":
            self.run.match()
            run_maintenance(self.engine.workspace, self.run.epoch, at_least=2)
        elif how in ("damaged", "deleted"):
            damage(self.engine, how)
            self.run.match()
        else:
            match_somehow(self.run, how)
        if how != "later":
            self.expected.add(self.engine, definitions, since, matched)

    def change(self, data: st.DataObject) -> None:
        """Declare, replace, pause, resume or drop a feed."""
        number = data.draw(st.integers(0, _FEEDS - 1))
        match data.draw(st.sampled_from(["create", "replace", "replace", "pause", "resume", "drop"])):
            case "create":
                text = f"create feed F{number} {data.draw(definition(number))}; subscribe to F{number} output log;"
            case "replace":
                text = f"create or replace feed F{number} {data.draw(definition(number))};"
            case "drop":
                text = f"drop feed F{number} cascade;"
            case verb:
                text = f"{verb} feed F{number};"
        with suppress(StatementError):  # the feed, or one that it reads, does not exist now, or exists already
            self.engine.execute(text)

    def publish(self, data: st.DataObject, number: int) -> None:
        """Publish an item some time later."""
        self.clock.advance(timedelta(hours=data.draw(st.sampled_from([0, 1, 12, 24, 48]))))
        title = " ".join(data.draw(st.lists(st.sampled_from("abc"), min_size=1, max_size=3)))
        values = {"title": title, "price": data.draw(st.integers(0, 7))}
        if data.draw(st.booleans()):
            values["graph"] = "<urn:x> <urn:p> <urn:y> ."
        name = data.draw(st.sampled_from(list(SOURCES.values())))
        item = data.draw(st.sampled_from([f"i{number}", "old"]))
        self.engine.publish(name, [{"id": item, "number": number, **values}])


@settings(
    deadline=None,
    max_examples=6,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(data=st.data(), partitions=st.sampled_from([1, 2]), in_two_stages=st.booleans())
def test_each_batch_matches_the_definitions_of_its_time(
    data: st.DataObject, partitions: int, in_two_stages: bool
) -> None:
    clock = FakeClock(START)
    with (
        pytest.MonkeyPatch.context() as patch,
        tempfile.TemporaryDirectory() as folder,
        runnel.connect(Path(folder) / "workspace", clock=clock, partitions=partitions) as engine,
    ):
        patch.setattr("runnel.streaming.window_store._FAN_IN", 2)
        engine.execute(" ".join(f"register feed {name};" for name in SOURCES.values()))
        run = InProcess(engine, slice_items=data.draw(st.integers(1, 5)))
        run.in_two_stages = in_two_stages
        world = World(engine, clock, run)
        for feed in range(_FEEDS):
            engine.execute(f"create feed F{feed} {data.draw(definition(feed))}; subscribe to F{feed} output log;")
        for number in range(data.draw(st.integers(8, 16))):
            for _ in range(data.draw(st.sampled_from([0, 0, 1, 2]))):
                world.change(data)
            ways = ["once", "died before", "again", "later", "merge", "damaged", "deleted"]
            world.match(data.draw(st.sampled_from(ways)))
            world.publish(data, number)
        world.match("once")
        world.expected.verify(engine)
        run.close()
