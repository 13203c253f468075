"""The item log: acceptance, versions, slices, the archive and the collection of orphans."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.log_upkeep import archive_matched, collect_garbage

from runnel.catalog.logs import item_segments as manifest
from runnel.catalog.logs import match_segments
from runnel.catalog.logs.match_segments import MatchSegment
from runnel.catalog.store import leases
from runnel.catalog.store.connection import Catalog
from runnel.engine.workspace_identity import claim_new
from runnel.errors import CorruptDataError, StorageFullError
from runnel.logs.items.item_log import Accepted, ItemLog
from runnel.model.item import Item, attributes_of
from runnel.storage.file_storage import FileStorage


class _Log:
    def __init__(self, folder: Path) -> None:
        self.catalog = Catalog(f"sqlite:///{folder / 'catalog.sqlite'}")
        self.catalog.migrate()
        self.storage = FileStorage(folder.as_uri())
        claim_new(self.catalog, self.storage)
        self.log = ItemLog(self.catalog, self.storage)
        self.folder = folder

    def ids(self, after: int = 0, upto: int = 10**9) -> list[str]:
        return [item.id for batch in self.log.read(after, upto) for item in batch.items({1: "A"})]

    def match_all(self) -> int:
        """Pretend that everything is matched; gives the epoch."""
        with self.catalog.write() as connection:
            lease = leases.acquire(connection, 60)
            first, last = match_segments.matched_upto(connection) + 1, self.log.last_sequence()
            segment = MatchSegment(1, first, first, last, 1, last - first + 1, 0)
            match_segments.commit_segment(connection, segment, [], epoch=lease.epoch)
            leases.release(connection, lease)
        return lease.epoch


@pytest.fixture
def kit(tmp_path: Path) -> _Log:
    return _Log(tmp_path)


def _items(*ids: str, title: str = "x") -> list[Item]:
    return [Item("A", value, attributes_of({"title": f"{title} {value}"})) for value in ids]


def test_accepted_items_are_read_in_order_with_sequence_and_time(kit: _Log) -> None:
    assert kit.log.accept(1, _items("a", "b")) == Accepted(1, 2, 2, 0)
    assert kit.log.accept(1, _items("c")) == Accepted(3, 3, 1, 0)
    batches = [item for batch in kit.log.read(1, 3) for item in batch.items({1: "A"})]
    assert [(item.id, item.sequence, item.version) for item in batches] == [("b", 2, 1), ("c", 3, 1)]
    assert all(item.time is not None for item in batches)


def test_unchanged_items_are_skipped_and_edited_items_are_new_versions(kit: _Log) -> None:
    kit.log.accept(1, _items("a", "b"))
    assert kit.log.accept(1, _items("a", "b")) == Accepted(unchanged=2)
    assert kit.log.accept(1, [*_items("a"), *_items("b", title="edited")]) == Accepted(3, 3, 1, 1)
    [batch] = kit.log.read(2, 3)
    [item] = batch.items({1: "A"})
    assert (item.id, item.version, item.first("title")) == ("b", 2, "edited b")


def test_an_item_edited_twice_in_one_document_is_two_versions(kit: _Log) -> None:
    kit.log.accept(1, [*_items("a"), *_items("a", title="second"), *_items("a", title="second")])
    [batch] = kit.log.read(0, 9)
    assert [item.version for item in batch.items({})] == [1, 2]


def test_the_same_id_in_two_feeds_is_two_items(kit: _Log) -> None:
    kit.log.accept(1, _items("a"))
    assert kit.log.accept(2, _items("a")).accepted == 1


def test_remembered_items_are_not_accepted_later(kit: _Log) -> None:
    assert kit.log.accept(1, _items("new"), remember=_items("old")).accepted == 1
    assert kit.log.accept(1, _items("old", "new")) == Accepted(unchanged=2)
    assert kit.log.accept(1, _items("old", title="edited")).accepted == 1


def test_two_publishers_of_the_same_items_accept_each_once(kit: _Log) -> None:
    barrier = threading.Barrier(4)

    def publish() -> None:
        barrier.wait()
        for number in range(10):
            kit.log.accept(1, _items(*(f"{number}-{value}" for value in range(5))))

    threads = [threading.Thread(target=publish) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(kit.ids()) == sorted(f"{number}-{value}" for number in range(10) for value in range(5))
    assert kit.log.last_sequence() == 50


def test_file_without_a_catalog_row_is_ignored(kit: _Log, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object, **named: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(manifest, "add_segment", fail)
        with pytest.raises(KeyboardInterrupt):
            kit.log.accept(1, _items("a"))
    assert len(list(kit.storage.files("items"))) == 1
    assert kit.ids() == []
    assert kit.log.accept(1, _items("a")) == Accepted(1, 1, 1, 0)
    assert collect_garbage(kit.catalog, kit.storage, older_than=3600) == 0
    assert collect_garbage(kit.catalog, kit.storage, older_than=0) == 1
    assert kit.ids() == ["a"]


def test_full_disk_accepts_nothing_and_leaves_no_file(kit: _Log, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("os.write", full)
        with pytest.raises(StorageFullError):
            kit.log.accept(1, _items("a"))
    assert list(kit.storage.files("items")) == []
    assert kit.log.accept(1, _items("a")).accepted == 1


def test_slices_cover_the_range_exactly(kit: _Log) -> None:
    kit.log.accept(1, _items(*map(str, range(10))))
    kit.log.accept(1, _items(*map(str, range(10, 25))))
    slices = kit.log.slices(3, 22, rows=4)
    assert [(item_slice.first_sequence, item_slice.last_sequence) for item_slice in slices] == [
        (4, 7),
        (8, 10),
        (11, 14),
        (15, 18),
        (19, 22),
    ]
    assert kit.ids(3, 22) == [str(number) for number in range(3, 22)]


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.lists(st.integers(1, 7), min_size=1, max_size=8), st.data())
def test_any_sequences_can_be_read(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], data: st.DataObject
) -> None:
    kit = _Log(tmp_path_factory.mktemp("log"))
    for number, size in enumerate(sizes):
        kit.log.accept(1, _items(*(f"{number}-{value}" for value in range(size))))
        if number == len(sizes) // 2:
            archive_matched(kit.catalog, kit.storage, epoch=kit.match_all())
    wanted = sorted(data.draw(st.sets(st.integers(1, sum(sizes)))))
    results = [int(sequence) for batch in kit.log.get(wanted) for sequence in batch.sequences]
    assert results == wanted


def test_archive_contains_the_items_of_the_log(kit: _Log) -> None:
    for number in range(5):
        kit.log.accept(1, _items(f"{number}a", f"{number}b"))
    before = [item for batch in kit.log.read(0, 99) for item in batch.items({1: "A"})]
    epoch = kit.match_all()
    kit.log.accept(1, _items("later"))
    assert archive_matched(kit.catalog, kit.storage, epoch=epoch) == 5
    after = [item for batch in kit.log.read(0, 99) for item in batch.items({1: "A"})]
    assert after[:-1] == before
    assert [item.time for item in after[:-1]] == [item.time for item in before]
    assert after[-1].id == "later"
    assert archive_matched(kit.catalog, kit.storage, epoch=epoch) == 0
    assert collect_garbage(kit.catalog, kit.storage, older_than=0) == 5
    assert kit.ids() == [item.id for item in after]


def test_items_are_found_by_time(kit: _Log) -> None:
    kit.log.accept(1, _items("a"))
    [item] = [item for batch in kit.log.read(0, 9) for item in batch.items({})]
    assert item.time is not None
    accepted = int(item.time.timestamp() * 1_000_000)
    assert kit.log.sequence_before(accepted) == 0
    assert kit.log.sequence_before(accepted + 1) == 1
    kit.log.accept(1, _items("b"))
    archive_matched(kit.catalog, kit.storage, epoch=kit.match_all())
    assert collect_garbage(kit.catalog, kit.storage, older_than=0) == 2
    assert kit.log.sequence_before(accepted + 1) == 1, "also when one archived file holds both"


def test_damaged_segment_is_reported(kit: _Log) -> None:
    kit.log.accept(1, _items("a"))
    [file] = kit.storage.files("items")
    kit.storage.local(file.path).write_bytes(b"not arrow")
    with pytest.raises(CorruptDataError, match="is damaged"):
        kit.ids()
