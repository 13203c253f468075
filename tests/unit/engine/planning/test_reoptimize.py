"""Compiling the plan again: only if it is worthwhile, with the same matches, and without undoing other changes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from runnel.catalog.learned import stream_statistics
from runnel.catalog.learned.stream_statistics import word_frequencies
from runnel.catalog.logs import plan_versions
from runnel.catalog.store import leases
from runnel.engine import Engine, connect
from runnel.engine.planning import reoptimize
from runnel.errors import CorruptDataError, WorkspaceError
from runnel.matching.compile.build_matcher import build_matcher
from runnel.matching.compile.gain import gain_of_compiling
from runnel.matching.contract import Matcher
from runnel.matching.filters.streams.stream_matcher import StreamMatcher
from runnel.model.item import Item
from runnel.model.item_batch import ItemBatch
from runnel.model.learned.stream_statistics import StreamSample
from runnel.papers.roses.tree_matcher import TreeMatcher
from runnel.plan import store
from runnel.plan.manifest import FORMAT
from runnel.plan.store import PlanVersion, load
from runnel.storage.checksums import decode_checked_json, encode_checked_json

QUERIES = 40
DECLARED = "register feed News;" + "".join(
    f"create feed Q{n} from News where title contains 'zq{n}' and title contains 'parliamentarian{n}';"
    f"subscribe to Q{n} output log;"
    for n in range(QUERIES)
)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with connect(tmp_path / "workspace") as opened:
        opened.execute(DECLARED)
        yield opened


def acquire_epoch(engine: Engine) -> int:
    with engine.workspace.catalog.write() as connection:
        return leases.acquire(connection, 600).epoch


def learn_frequencies(engine: Engine) -> None:
    """Record stream statistics in which the long words, which would be estimated as rare, are in every item."""
    seen = StreamSample(1_000.0, {f"parliamentarian{n}": 990.0 for n in range(QUERIES)})
    with engine.workspace.catalog.write() as connection:
        stream_statistics.note(connection, {1: seen})
        assert stream_statistics.learn(connection) == 1


def current_matcher(engine: Engine) -> Matcher:
    with engine.workspace.catalog.read() as connection:
        row = plan_versions.current_plan(connection)
    assert row is not None
    return build_matcher(load(engine.workspace.storage, PlanVersion.of(row)))


def news_batch() -> ItemBatch:
    every = " ".join(f"parliamentarian{n}" for n in range(QUERIES))
    return ItemBatch.of([Item("News", str(n), {"title": (f"zq{n} {every}",)}) for n in range(30)], {"News": 1})


def test_worthwhile_recompilation_is_published_and_matches_the_same_items(engine: Engine) -> None:
    held = acquire_epoch(engine)
    assert reoptimize.reoptimize(engine.workspace, held) is None, "nothing was learned yet"
    before = current_matcher(engine)
    expected = before.match(news_batch())
    learn_frequencies(engine)
    done = reoptimize.reoptimize(engine.workspace, held)
    assert done is not None
    assert done.version is not None
    assert done.then < done.now / 10
    after = current_matcher(engine)
    matches = after.match(news_batch())
    assert matches.queries.tolist() == expected.queries.tolist()
    assert matches.offsets.tolist() == expected.offsets.tolist()
    assert matches.total == 30
    for row in range(30):  # index entries are counted once per batch, so match the items one by one
        single = ItemBatch(news_batch().records.slice(row, 1))
        assert before.match(single).total == after.match(single).total == 1
    assert after.statistics.candidates < before.statistics.candidates / 10
    again = reoptimize.reoptimize(engine.workspace, held)
    assert again is not None
    assert again.version is None, "there is nothing more to gain"


def test_recompiled_plan_is_not_published_after_another_change(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = acquire_epoch(engine)
    learn_frequencies(engine)
    loaded = store.load

    def load_after_another_change(*arguments: object) -> object:
        engine.execute("create feed Late from News where title contains 'late'; subscribe to Late output log;")
        monkeypatch.undo()
        return loaded(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(store, "load", load_after_another_change)
    done = reoptimize.reoptimize(engine.workspace, held)
    assert done is not None
    assert done.version is None
    late = ItemBatch.of([Item("News", "1", {"title": ("late",)})], {"News": 1}, first_sequence=9)
    assert current_matcher(engine).match(late).total == 1


def test_gain_is_the_number_of_index_entries_saved_per_item(engine: Engine) -> None:
    learn_frequencies(engine)
    with engine.workspace.catalog.read() as connection:
        row, known = plan_versions.current_plan(connection), word_frequencies(connection)
    assert row is not None
    gain = gain_of_compiling(load(engine.workspace.storage, PlanVersion.of(row)), known)
    assert gain.now == pytest.approx(0.99 * QUERIES, rel=0.02)
    assert gain.then < 5


def _downgrade_plan_format(engine: Engine) -> None:
    """Declare a query, and change the plan's manifest to an older format, which cannot be read."""
    engine.execute("create feed Muse from News where title contains 'Muse''s album'; subscribe to Muse output log;")
    with engine.workspace.catalog.read() as connection:
        row = plan_versions.current_plan(connection)
    assert row is not None
    for folder in filter(None, (row.base, row.delta)):
        path = f"{folder}/manifest.json"
        manifest = decode_checked_json(engine.workspace.storage.read(path))
        engine.workspace.storage.replace(path, encode_checked_json(manifest | {"format": FORMAT - 1}))
    store.forget_parts()


MUSE = ItemBatch.of([Item("News", "1", {"title": ("Muse’s album is out",)})], {"News": 1})


def test_plan_of_an_older_format_is_recompiled(engine: Engine) -> None:
    held = acquire_epoch(engine)
    assert reoptimize.recompile_unusable(engine.workspace, held) is None, "it has the current format"
    _downgrade_plan_format(engine)
    with pytest.raises(CorruptDataError, match=f"format {FORMAT - 1} is older than {FORMAT}"):
        current_matcher(engine)
    version = reoptimize.recompile_unusable(engine.workspace, held)
    assert version is not None
    assert current_matcher(engine).match(MUSE).total == 1
    assert reoptimize.recompile_unusable(engine.workspace, held) is None


def test_plan_is_recompiled_for_the_matcher_in_the_settings(engine: Engine) -> None:
    engine.execute("create feed Album from News where title contains 'album'; subscribe to Album output log;")
    assert isinstance(current_matcher(engine), StreamMatcher)
    held = acquire_epoch(engine)
    with connect(engine.workspace.folder, matcher="tree") as changed:
        assert isinstance(current_matcher(changed), StreamMatcher), (
            "a plan keeps its current_matcher until it is compiled again"
        )
        assert reoptimize.recompile_unusable(changed.workspace, held) is not None
        assert isinstance(current_matcher(changed), TreeMatcher)
        assert current_matcher(changed).match(MUSE).total == 1
        assert reoptimize.recompile_unusable(changed.workspace, held) is None
    with pytest.raises(WorkspaceError, match="'tere' is not installed; installed: index, streams, tree"):
        connect(engine.workspace.folder, matcher="tere")


def test_damaged_plan_is_recompiled(engine: Engine) -> None:
    engine.execute("create feed Album from News where title contains 'album'; subscribe to Album output log;")
    with engine.workspace.catalog.read() as connection:
        row = plan_versions.current_plan(connection)
    assert row is not None
    arrays = engine.workspace.storage.local(f"{row.base}/arrays.npy")
    arrays.write_bytes(arrays.read_bytes()[:-1] + b"?")
    store.forget_parts()
    version = reoptimize.recompile_unusable(engine.workspace, acquire_epoch(engine))
    assert version is not None
    assert version > row.version
    assert current_matcher(engine).match(MUSE).total == 1


def test_declaration_replaces_a_plan_of_an_older_format(engine: Engine) -> None:
    _downgrade_plan_format(engine)
    engine.execute("create feed More from News where title contains 'album'; subscribe to More output log;")
    assert current_matcher(engine).match(MUSE).total == 2
