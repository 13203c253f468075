"""Helpers that run gated feeds in this process and compare the match log with the reference evaluator."""

from __future__ import annotations

from tests.integration.in_process import InProcess
from tests.unit.matching.gates.gated_worlds import SOURCES, START, GatedWorld

from runnel.algebra.nodes.gate_rules import LoggedItem
from runnel.algebra.nodes.query import Filter, Gated, Node, Read, Union
from runnel.algebra.nodes.render import render
from runnel.algebra.semantics.evaluate_log import evaluate_log
from runnel.catalog.declared import feeds
from runnel.catalog.store import leases
from runnel.engine import Engine
from runnel.streaming.worker.match_job import match_slices


def logged(engine: Engine) -> list[LoggedItem]:
    """Return the item log in the form that the reference evaluator reads."""
    items = engine.workspace.items
    return [
        LoggedItem(item.sequence or 0, item.time or START, int(feed), item.id, item.attributes)
        for batch in items.read(0, items.last_sequence())
        for feed, item in zip(batch.feeds, batch.items({}), strict=True)
    ]


def verify(engine: Engine) -> None:
    """Assert that the match log has one row per item and equals the result of the reference evaluator."""
    with engine.workspace.catalog.read() as connection:
        definitions, since = feeds.definitions(connection), feeds.since_of(connection)
    evaluated = list(evaluate_log(logged(engine), definitions, since))
    expected = {one.item.sequence: sorted(one.feeds) for one in evaluated if one.feeds}
    found: dict[int, list[int]] = {}
    annotations: dict[tuple[int, int], dict[int, tuple[int, ...]]] = {}
    for rows in engine.workspace.matches.read(0, engine.workspace.items.last_sequence()):
        for key, several in rows.annotations_of(expected).items():
            annotations[key] = {each.gate: each.newest for each in several}
            assert all(each.count == len(each.newest) for each in several)
        for row, sequence in enumerate(rows.sequences.tolist()):
            assert sequence not in found
            found[sequence] = rows.queries[rows.offsets[row] : rows.offsets[row + 1]].tolist()
    assert found == expected
    assert annotations == {
        (feed, one.item.sequence): dict(joined) for one in evaluated for feed, joined in one.annotations.items()
    }
    assert engine.status().matches == sum(map(len, found.values()))


def statement(name: str, node: Node, names: dict[int, str]) -> str:
    """Render a generated definition as a statement."""
    clause, conditions = "", []
    if isinstance(node, Gated):
        clause, node = f" {node.rule.render()}", node.input
    if isinstance(node, Filter) and not isinstance(node.input, Read):
        conditions.append(f"({render(node.condition)})")
        node = node.input
    terms = []
    for number, term in enumerate(node.inputs if isinstance(node, Union) else (node,)):
        match term:
            case Filter(Read(feed), condition):
                terms.append(f"{names[feed]} as $v{number}")
                conditions.append(f"$v{number}[{render(condition)}]")
            case Filter(Filter(Read(feed), inner), condition):
                terms.append(f"{names[feed]} as $v{number}")
                conditions += [f"$v{number}[{render(one)}]" for one in (inner, condition)]
            case Read(feed):
                terms.append(names[feed])
            case _:
                raise AssertionError(term)
    where = f" where {' and '.join(conditions)}" if conditions else ""
    return f"create feed {name} from {' | '.join(terms)}{clause}{where};"


def script(world: GatedWorld) -> str:
    names = SOURCES | {feed: f"F{feed}" for feed in world.definitions}
    lines = [f"register feed {name};" for name in SOURCES.values()]
    lines += [statement(names[feed], node, names) for feed, node in world.definitions.items()]
    lines += [f"subscribe to {names[feed]} output log;" for feed in world.definitions]
    return "\n".join(lines)


def match_somehow(run: InProcess, how: str) -> None:
    """Match waiting items, with orphaned parts of a crashed runner and repeated batches."""
    if how == "later":
        return
    start, number = run.offset, run.batches
    if how == "died before":
        end = run.reader.latestOffset(start, None)
        step = match_slices(run.job.storage, run.job.lineage)
        for partition in run.reader.partitions(start, end):
            assert list(step(run.reader.read(partition)))
    run.match()
    if how == "again" and run.batches == number + 1:
        run.commit(start, run.offset, number)


def stop(engine: Engine, run: InProcess) -> None:
    """End the run, so that another can start."""
    run.close()
    with engine.workspace.catalog.write() as connection:
        leases.release(connection, run.lease)
