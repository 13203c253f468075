"""The contract of gates, tested with `distinct` and with a kind that `src` does not refer to.

These tests register `quota_gate`. For any plan, any batches and any crash, gates of all kinds let the same items pass
as the reference evaluator.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.contracts.quota_gate import QUOTAS, Quota
from tests.integration.gated_runs import match_somehow, script, stop, verify
from tests.integration.in_process import InProcess, matched_ids
from tests.log_upkeep import collect_garbage
from tests.unit.matching.gates.gated_worlds import (
    DISTINCT_RULES,
    SOURCES,
    START,
    TITLE,
    GatedWorld,
    gated_worlds,
    nodes,
    readers_of,
)

import runnel
from runnel import families
from runnel.algebra.nodes.encode import decode_node, encode_node
from runnel.algebra.nodes.gate_rules import GateRule
from runnel.algebra.nodes.query import Gated, Node, Read
from runnel.algebra.semantics.distinct import Distinct
from runnel.catalog.declared import feeds
from runnel.catalog.logs import gate_states
from runnel.engine import Engine, connect
from runnel.engine.upkeep.backup import back_up
from runnel.engine.upkeep.maintenance import run_maintenance
from runnel.engine.upkeep.restore import restore
from runnel.errors import InputError
from runnel.language.grammar.parser import parse
from runnel.language.printing import print_statement
from runnel.language.syntax.statements import CreateFeed
from runnel.matching.compile.build_matcher import build_matcher
from runnel.matching.compile.compile_plan import compile_base, compile_delta, compile_merged
from runnel.matching.gates.claims import Claims, GateKeeper
from runnel.matching.gates.ordered_matcher import OrderedMatcher
from runnel.matching.gates.resolve_gates import resolve_gates
from runnel.model.gate_state import GateState
from runnel.model.item_batch import ItemBatch
from runnel.plan.gates import visible
from runnel.plan.logical_plan import PlanQuery
from runnel.plan.store import Plan, PlanVersion, load
from runnel.storage.file_storage import FileStorage
from runnel.testing import FakeClock

QUOTA_RULES: st.SearchStrategy[GateRule] = st.builds(Quota, st.integers(0, 3))
KINDS = {"distinct": DISTINCT_RULES, "quota": QUOTA_RULES, "both": st.one_of(DISTINCT_RULES, QUOTA_RULES)}
every_kind = pytest.mark.parametrize("rules", KINDS.values(), ids=KINDS)

SCRIPT = """
register feed Wire; register feed Agency;
create feed News from Wire | Agency distinct by title within 2 days where title contains 'muse';
create feed Few from News limit 2 per day;
create feed Cheap from Few where price < 10;
create feed Calm from Wire | Agency limit 3 per day;
create feed Once from Calm distinct by title;
subscribe to News output log; subscribe to Few output log; subscribe to Cheap output log;
subscribe to Once output log;
"""


@pytest.fixture(scope="module", autouse=True)
def quotas() -> Iterator[None]:
    """The kind of gate, registered during these tests, without waiting for the disk."""
    families.registry().add_gate(QUOTAS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("runnel.storage.file_storage.os.fsync", lambda handle: None)
        yield
    del families.registry().gates[QUOTAS.name]


@pytest.fixture
def engine(tmp_path: Path, clock: FakeClock) -> Iterator[Engine]:
    """An engine on a new workspace, with the clock of the test."""
    with runnel.connect(tmp_path / "root", clock=clock) as opened:
        yield opened


def items(*rows: tuple[str, float]) -> list[dict[str, Any]]:
    return [{"id": f"{title}/{price}", "title": title, "price": price} for title, price in rows]


# --- rules ---------------------------------------------------------------------------------------------------------


@every_kind
@settings(deadline=None, max_examples=30)
@given(data=st.data())
def test_a_rule_is_stored_printed_and_read_back(rules: st.SearchStrategy[GateRule], data: st.DataObject) -> None:
    rule = data.draw(rules)
    node = Gated(Read(1), rule)
    assert decode_node(encode_node(node)) == node
    statement = parse(f"create feed N from A {rule.render()} where x = 1")[0].statement
    assert isinstance(statement, CreateFeed)
    assert statement.query.gate == rule
    assert parse(print_statement(statement))[0].statement == statement
    assert rule.describe()
    assert rule.lookback > timedelta()


def test_a_kind_is_registered_once_and_an_unknown_one_is_refused() -> None:
    with pytest.raises(InputError, match="kind of gate is already named quota"):
        families.registry().add_gate(QUOTAS)
    with pytest.raises(ValueError, match="unknown kind of gate 'unheard'"):
        decode_node({"gate": ["unheard", 3], "input": 1})


# --- plans ---------------------------------------------------------------------------------------------------------


def answers(plan: Plan, world: GatedWorld) -> dict[int, set[int]]:
    matcher = OrderedMatcher(plan, build_matcher(plan))
    found: dict[int, set[int]] = {}
    for batch in world.batches():
        matches = matcher.match(batch)
        for row, sequence in enumerate(batch.sequences.tolist()):
            ids = matches.row(row).tolist()
            assert ids == sorted(set(ids))
            found[sequence] = set(ids)
    return found


def queries(world: GatedWorld, feeds: set[int] | None = None) -> list[PlanQuery]:
    return [PlanQuery(feed, since) for feed, since in world.since.items() if feeds is None or feed in feeds]


@every_kind
@settings(deadline=None, max_examples=25)
@given(data=st.data())
def test_base_matches_like_the_reference(rules: st.SearchStrategy[GateRule], data: st.DataObject) -> None:
    world = data.draw(gated_worlds(rules))
    with tempfile.TemporaryDirectory() as folder:
        storage = FileStorage(Path(folder).as_uri())
        compile_base(storage, "base", queries(world), world.definitions)
        plan = load(storage, PlanVersion(1, "base"))
        gated = {feed: node.rule for feed, node in world.definitions.items() if isinstance(node, Gated)}
        assert {gate.feed: gate.rule for gate in plan.gates.gates()} == gated
        assert answers(plan, world) == world.expected()


@every_kind
@settings(deadline=None, max_examples=20)
@given(data=st.data())
def test_delta_and_merged_base_match_alike(rules: st.SearchStrategy[GateRule], data: st.DataObject) -> None:
    """The base has some of the feeds, one with another definition; the delta has the rest and its readers."""
    world = data.draw(gated_worlds(rules))
    feeds = sorted(world.definitions)
    in_base = set(feeds[: data.draw(st.integers(1, len(feeds)))])
    changed = data.draw(st.sampled_from(sorted(in_base)))
    before = dict(world.definitions)
    before[changed] = data.draw(nodes([*SOURCES, *(one for one in feeds if one < changed)], rules=rules))
    redefined = readers_of(changed, world.definitions) if before[changed] != world.definitions[changed] else set()
    with tempfile.TemporaryDirectory() as folder:
        storage = FileStorage(Path(folder).as_uri())
        compile_base(storage, "base", queries(world, in_base), before)
        added = (set(feeds) - in_base) | redefined
        compile_delta(storage, "delta", queries(world, added), world.definitions, redefined & in_base, "base")
        plan = load(storage, PlanVersion(1, "base", "delta"))
        expected = world.expected()
        assert answers(plan, world) == expected
        compile_merged(storage, "merged", plan)
        merged = load(storage, PlanVersion(2, "merged"))
        assert answers(merged, world) == expected
        assert visible(merged.base.logical.query_ids).tolist() == feeds


@every_kind
@settings(deadline=None, max_examples=20)
@given(data=st.data())
def test_feed_compiled_alone_has_its_gates_and_matches_only_itself(
    rules: st.SearchStrategy[GateRule], data: st.DataObject
) -> None:
    world = data.draw(gated_worlds(rules))
    last = max(world.definitions)
    alone = GatedWorld(world.definitions, {last: 0}, world.items, world.cuts)
    with tempfile.TemporaryDirectory() as folder:
        storage = FileStorage(Path(folder).as_uri())
        compile_base(storage, "base", queries(alone), world.definitions)
        assert answers(load(storage, PlanVersion(1, "base")), alone) == alone.expected()


@pytest.mark.parametrize("rule", [Distinct((TITLE,)), Quota(1)], ids=lambda rule: rule.kind)
def test_tombstone_removes_a_gate_and_its_readers(tmp_path: Path, rule: GateRule) -> None:
    storage = FileStorage(tmp_path.as_uri())
    definitions: dict[int, Node] = {8: Read(1), 9: Gated(Read(1), rule), 10: Read(9)}
    compile_base(storage, "base", [PlanQuery(feed) for feed in definitions], definitions)
    compile_delta(storage, "delta", [], {}, [9, 10], "base")
    plan = load(storage, PlanVersion(2, "base", "delta"))
    assert len(load(storage, PlanVersion(1, "base")).gates) == 1
    assert not len(plan.gates)
    assert not GateKeeper(plan).is_needed


# --- workers and commits -------------------------------------------------------------------------------------------


def only(states: Mapping[bytes, GateState]) -> Callable[[Collection[bytes]], Mapping[bytes, GateState]]:
    """A reader that returns only the requested states, as the catalog does."""
    return lambda keys: {key: states[key] for key in keys if key in states}


@every_kind
@settings(deadline=None, max_examples=25)
@given(data=st.data())
def test_claims_of_any_workers_resolve_like_the_reference(
    rules: st.SearchStrategy[GateRule], data: st.DataObject
) -> None:
    """The claims of slices are serialized, and a batch that is resolved again changes nothing."""
    world = data.draw(gated_worlds(rules))
    found: dict[int, set[int]] = {item.sequence: set() for item in world.items}
    states: dict[bytes, GateState] = {}
    with tempfile.TemporaryDirectory() as folder:
        storage = FileStorage(Path(folder).as_uri())
        compile_base(storage, "base", queries(world), world.definitions)
        plan = load(storage, PlanVersion(1, "base"))
        matcher, keeper = build_matcher(plan), GateKeeper(plan)
        for batch in world.batches():
            cut = data.draw(st.integers(0, len(batch)))
            both = (ItemBatch(batch.records.slice(0, cut)), ItemBatch(batch.records.slice(cut)))
            slices = [one for one in both if len(one)]
            taken = [keeper.take_out(one, matcher.match(one)) for one in slices]
            claims = [Claims.decode(one.encode()) for _, one in taken]
            resolved = resolve_gates(Claims.of([one.at_gates() for one in claims]), only(states))
            again = resolve_gates(Claims.of([one.at_gates() for one in reversed(claims)]), only(states))
            assert (again.states, again.stopped) == (resolved.states, resolved.stopped)
            states.update((state.key, state) for state in resolved.states)
            for one, (kept, _), own in zip(slices, taken, claims, strict=True):
                for row, sequence in enumerate(one.sequences.tolist()):
                    found[sequence] |= set(kept.row(row).tolist())
                for sequence, query in zip(*(column.tolist() for column in resolved.matches(own)), strict=True):
                    found[sequence].add(query)
    assert found == world.expected()


@every_kind
@settings(deadline=None, max_examples=10)
@given(data=st.data())
def test_generated_queries_match_like_the_reference_in_any_batches(
    rules: st.SearchStrategy[GateRule], data: st.DataObject
) -> None:
    """From statements to the match log, with crashes, repeated batches and feeds that are declared later."""
    world = data.draw(gated_worlds(rules))
    clock = FakeClock(START)
    with tempfile.TemporaryDirectory() as folder, runnel.connect(Path(folder) / "root", clock=clock) as engine:
        engine.execute(script(world))
        run = InProcess(engine, slice_items=data.draw(st.integers(1, 5)))
        before = START
        for place, item in enumerate(world.items):
            if place in world.cuts:
                match_somehow(run, data.draw(st.sampled_from(["once", "died before", "again", "later"])))
                if data.draw(st.booleans()):
                    engine.execute(f"create feed Late{place} from F10 | Two; subscribe to Late{place} output log;")
            clock.advance(item.accepted - before)
            before = item.accepted
            values = {name: value[0] for name, value in item.attributes.items()}
            engine.publish(SOURCES[item.feed], [{"id": item.id, **values}])
        run.match()
        verify(engine)
        run.close()


def test_states_survive_runners_and_backups(engine: Engine, tmp_path: Path, clock: FakeClock) -> None:
    engine.execute(SCRIPT)
    run = InProcess(engine)
    engine.publish("Wire", items(("Muse", 1), ("Jazz", 2)))
    run.match()
    stop(engine, run)
    back_up(engine.workspace, tmp_path / "backup")
    restore(tmp_path / "backup", tmp_path / "again", clock=clock)
    with runnel.connect(tmp_path / "again", clock=clock) as again:
        for one in (engine, again):
            other = InProcess(one)  # another lineage, as after an update
            one.publish("Agency", items(("MUSE", 3), ("Muse live", 4), ("Muse tour", 50)))
            other.match()
            assert matched_ids(one, "News") == ["Muse/1", "Muse live/4", "Muse tour/50"]
            assert matched_ids(one, "Few") == ["Muse/1", "Muse live/4"]
            assert matched_ids(one, "Once") == ["Muse/1", "Jazz/2"], "the third item of the day repeats a title"
            verify(one)
            other.close()


def test_expired_states_are_deleted(engine: Engine, clock: FakeClock) -> None:
    engine.execute(SCRIPT)
    run = InProcess(engine)
    engine.publish("Wire", items(("Muse", 1), ("Muse live", 2)))
    run.match()

    def stored() -> dict[str, int]:
        with engine.workspace.catalog.read() as connection:
            ids = {name: feed for feed, name in feeds.feed_names(connection).items()}
            return {name: gate_states.count_states(connection, ids[name]) for name in ("News", "Few", "Calm")}

    assert stored() == {"News": 2, "Few": 1, "Calm": 1}
    clock.advance(timedelta(days=1))
    engine.publish("Wire", items(("Jazz", 3)))
    run.match()
    assert run_maintenance(engine.workspace, run.epoch, chores=True).forgotten == 2
    assert stored() == {"News": 2, "Few": 0, "Calm": 1}, "the day of the last item goes on"
    run.close()


@pytest.mark.parametrize(("at", "when"), [(1, "after"), (2, "before"), (2, "after")])
def test_crash_during_commit_loses_and_repeats_nothing(tmp_path: Path, at: int, when: str) -> None:
    """The writes below matches/ are the part of a task and, in the commit, the part that replaces it."""
    root = tmp_path / "root"
    with connect(root) as engine:
        engine.execute(SCRIPT)
        engine.publish("Wire", items(("Muse", 1)))
        run = InProcess(engine)
        run.match()
        stop(engine, run)
        engine.publish("Agency", items(("muse", 200), ("Muse live", 2), ("MUSE live", 3), ("Muse tour", 4)))
    storage = f"crash+{root.as_uri()}?at={at}&below=matches/&when={when}&counter={tmp_path / 'counter'}&group=GROUP"
    program = (
        "import os, sys\nfrom runnel.engine import connect\nfrom runnel.families import registry\n"
        "from tests.contracts.quota_gate import QUOTAS\nfrom tests.integration.in_process import InProcess\n"
        "registry().add_gate(QUOTAS)\n"
        "engine = connect(sys.argv[1], storage=sys.argv[2].replace('GROUP', str(os.getpgrp())))\n"
        "InProcess(engine).match()\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, str(root), storage],
        start_new_session=True,
        capture_output=True,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert ended.returncode == -9, ended.stderr.decode()
    with connect(root, orphan_seconds=0.0) as engine:
        assert engine.workspace.matches.matched_upto() == 1
        with engine.workspace.catalog.read() as connection:
            ids = {name: feed for feed, name in feeds.feed_names(connection).items()}
            assert [gate_states.count_states(connection, ids[name]) for name in ("News", "Few")] == [1, 1]
        run = InProcess(engine)
        run.match()
        verify(engine)
        assert matched_ids(engine, "News") == ["Muse/1", "Muse live/2", "Muse tour/4"]
        assert collect_garbage(engine.workspace.catalog, engine.workspace.storage, older_than=0) > 0
        verify(engine)
        run.close()


# --- questions -----------------------------------------------------------------------------------------------------


def test_why_names_the_gate_that_stops_an_item_and_the_item_that_caused_it(engine: Engine) -> None:
    engine.execute(SCRIPT)
    run = InProcess(engine)
    engine.publish("Wire", items(("Muse", 1), ("MUSE", 2), ("Muse live", 3), ("Muse tour", 4)))
    run.match()
    run.close()
    for item, verdict, stopped_by, line in (
        ("Muse live/3", True, {}, "✓ among the first 2 items of the day"),
        ("Muse tour/4", False, {"Few": None}, "✗ among the first 2 items of the day"),
        (
            "MUSE/2",
            False,
            {"News": {"source": "Wire", "item": "Muse/1", "sequence": 1}},
            "✗ no earlier item with the same title within 2 days: Wire item Muse/1",
        ),
    ):
        (why,) = engine.execute(f"why item '{item}' in Few;")
        assert (why.to_json()["holds"], why.to_json()["recorded"], why.to_json()["stopped_by"]) == (
            verdict,
            verdict,
            stopped_by,
        )
        assert any(line in one for one in why.lines), why.lines


def test_explain_preview_and_test_apply_every_gate(engine: Engine) -> None:
    engine.execute(SCRIPT)
    engine.publish("Wire", items(("Muse", 1), ("MUSE", 2), ("Muse live", 3), ("Muse tour", 4)))
    (explained,) = engine.execute("explain feed Cheap;")
    assert "must pass the gate of Few (limit 2 per day)" in " ".join(" ".join(explained.lines).split())
    (explained,) = engine.execute("explain feed Few;")
    gates = "must pass the gate of News (distinct by title within 2 days), then Few (limit 2 per day)"
    assert gates in " ".join(" ".join(explained.lines).split())
    (previewed,) = engine.execute("preview create feed T from News limit 1 per day over last 7 days;")
    assert previewed.to_json()["matched"] == 1
    assert "`limit 1 per day` was applied to these items only" in previewed.message
    assert "`distinct by title within 2 days` was applied to these items only" in previewed.message
    tried = engine.test(items(*((f"muse {number}", number) for number in range(4))), feed="Wire")
    assert [one.queries for one in tried.items] == [
        ("News", "Few", "Cheap", "Calm", "Once"),
        ("News", "Few", "Cheap", "Calm", "Once"),
        ("News", "Calm", "Once"),
        ("News",),
    ]


def test_from_last_applies_every_gate_to_items_that_were_never_matched(engine: Engine, clock: FakeClock) -> None:
    engine.execute(
        "register feed Wire; create feed News from Wire distinct by title; create feed F from News limit 2 per day;"
    )
    for title in ("a", "A", "b", "c"):
        engine.publish("Wire", items((title, engine.workspace.items.last_sequence())))
    clock.advance(timedelta(days=1))
    engine.publish("Wire", items(("a", 7), ("d", 8)))
    engine.execute("subscribe to F output jsonl 'few.jsonl' from last 7 days;")
    run = InProcess(engine)
    run.run()
    run.close()
    lines = (engine.workspace.out / "few.jsonl").read_text("utf-8").splitlines()
    assert [json.loads(line)["id"] for line in lines] == ["a/0", "b/2", "d/8"]


def test_the_library_applies_gates_and_data_frames_refuse_them() -> None:
    from runnel.spark import match

    plan = runnel.compile("create feed Few from Wire limit 1 per day")
    assert plan.gates == ("limit 1 per day",)
    assert plan.match([{"title": "a"}, {"title": "b"}]) == [["Few"], []]
    with pytest.raises(InputError, match="`limit 1 per day` depends on the order of items"):
        match(None, plan)


def test_only_the_gates_of_a_plan_are_loaded() -> None:
    """A plan without gates imports no kind of gate, and a plan imports only the kinds that it has."""
    program = (
        "import sys, runnel\n"
        "runnel.compile('create feed A from B where x = 1').match([{'x': 1}])\n"
        "print('runnel.matching.gates.distinct' in sys.modules)\n"
        "runnel.compile('create feed A from B distinct').match([{'x': 1}])\n"
        "print('runnel.matching.gates.distinct' in sys.modules)\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True)
    assert ended.stdout.split() == ["False", "True"]
