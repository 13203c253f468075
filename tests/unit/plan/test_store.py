"""Plan folders: a plan that is written is loaded again, and a replace_file file is rejected by name."""

from __future__ import annotations

import hashlib
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runnel.algebra.nodes.attributes import Attribute
from runnel.algebra.nodes.expressions import And, Contains, Expression, Or, RegularExpression
from runnel.algebra.nodes.query import Filter, Node, Read, Union
from runnel.errors import CorruptDataError, NewerWorkspaceError, NotFoundError
from runnel.matching.compile.build_matcher import build_matcher
from runnel.matching.compile.compile_plan import compile_base, compile_delta
from runnel.matching.explain.explain_query import explain_query
from runnel.model.item import Item
from runnel.model.item_batch import ItemBatch
from runnel.optimizer.optimize import optimize
from runnel.plan import store
from runnel.plan.logical_plan import PlanQuery
from runnel.plan.manifest import FORMAT, PlanFile, PlanManifest
from runnel.plan.store import Plan, PlanVersion, load, load_part, verify, write_base
from runnel.storage.checksums import decode_checked_json, encode_checked_json
from runnel.storage.file_storage import FileStorage


def word(text: str) -> Expression:
    return Contains(Attribute("title"), (text,))


VIEWS: dict[int, Node] = {
    10: Filter(Union((Read(1), Read(2))), And((word("rock"), word("concert")))),
    11: Filter(Read(10), word("muse")),
    12: Filter(Read(1), Or(tuple(And((word(f"a{n}"), word(f"b{n}"))) for n in range(12)))),
    13: Filter(Union((Read(2), Read(1))), And((word("concert"), word("rock")))),
}
QUERIES = [PlanQuery(feed, feed) for feed in VIEWS]


@pytest.fixture
def storage(tmp_path: Path) -> FileStorage:
    return FileStorage(tmp_path.as_uri())


@pytest.fixture
def plan(storage: FileStorage) -> Plan:
    compile_base(storage, "base", QUERIES, VIEWS)
    compile_delta(storage, "delta", [PlanQuery(14)], {14: Filter(Read(3), word("jazz"))}, [11], "base")
    return load(storage, PlanVersion(2, "base", "delta"))


def test_written_plan_is_loaded_unchanged(storage: FileStorage) -> None:
    logical = optimize(QUERIES, VIEWS)
    manifest = write_base(storage, "base", logical)
    loaded = load(storage, PlanVersion(1, "base")).base
    for name, array in logical.arrays().items():
        assert np.array_equal(array, loaded.logical.arrays()[name]), name
        kind = np.dtype(np.int32) if name.endswith(".offsets") else array.dtype
        assert loaded.logical.arrays()[name].dtype == kind, name
    assert loaded.manifest == manifest
    assert loaded.manifest.counts["queries"] == 4
    assert manifest.size == sum(storage.local(f"base/{name}").stat().st_size for name in manifest.files)
    verify(storage, "base")


def test_large_arrays_are_memory_mapped(storage: FileStorage) -> None:
    views: dict[int, Node] = {10 + n: Filter(Read(1), word(f"word{n}")) for n in range(5000)}
    write_base(storage, "base", optimize([PlanQuery(feed) for feed in views], views))
    atoms = load_part(storage, "base").logical.atoms
    assert atoms.text(4999) == '["contains","title","word4999"]'
    mapped: Any = atoms.data
    while not isinstance(mapped, np.memmap):
        mapped = mapped.base
        assert mapped is not None


def test_folder_is_cached_after_loading_and_cannot_be_overwritten(storage: FileStorage, plan: Plan) -> None:
    assert load(storage, plan.version).base is plan.base
    with pytest.raises(FileExistsError):
        write_base(storage, "base", optimize(QUERIES, VIEWS))


def test_delta_has_tombstones_for_removed_queries_and_for_its_own(plan: Plan) -> None:
    assert plan.delta is not None
    assert plan.delta.tombstones.tolist() == [11, 14]
    assert plan.removed(plan.base).tolist() == [False, True, False, False]
    assert plan.removed(plan.delta).tolist() == [False]


def test_loading_rejects_wrong_kinds_and_parents_of_folders(storage: FileStorage, plan: Plan) -> None:
    compile_base(storage, "other", QUERIES, VIEWS)
    with pytest.raises(CorruptDataError, match="not a delta of other"):
        load(storage, PlanVersion(3, "other", "delta"))
    with pytest.raises(CorruptDataError, match="delta is not a base"):
        load(storage, PlanVersion(3, "delta"))
    with pytest.raises(CorruptDataError, match=r"missing/manifest\.json"):
        load(storage, PlanVersion(3, "missing"))


def replace_file(storage: FileStorage, name: str, data: bytes | None) -> FileStorage:
    """Replace or delete a file of the base; return the storage under another URL, so that no cached part is used."""
    path = storage.local(f"base/{name}")
    path.unlink()
    if data is not None:
        path.write_bytes(data)
    return FileStorage(storage.url + "/.")


def test_truncated_extended_or_missing_file_is_rejected_by_name(storage: FileStorage, plan: Plan) -> None:
    name = "arrays.npy"
    content = storage.read(f"base/{name}")
    for data in (content[:-1], content + b"x", b"", None):
        with pytest.raises(CorruptDataError, match=f"base/{name}"):
            load(replace_file(storage, name, data), PlanVersion(1, "base"))
        storage.local(f"base/{name}").write_bytes(content)
    load(FileStorage(storage.url + "/."), PlanVersion(1, "base"))


def test_file_without_a_plain_array_is_rejected(storage: FileStorage, plan: Plan) -> None:
    size = len(storage.read("base/arrays.npy"))
    with pytest.raises(CorruptDataError, match=r"base/arrays\.npy"):
        load(replace_file(storage, "arrays.npy", b"\x00" * size), PlanVersion(1, "base"))
    pickled = io.BytesIO()
    np.save(pickled, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    data = pickled.getvalue().ljust(size, b"\x00")[:size]
    with pytest.raises(CorruptDataError, match=r"base/arrays\.npy"):
        load(replace_file(storage, "arrays.npy", data), PlanVersion(1, "base"))


def fill_array(storage: FileStorage, plan: Plan, name: str, value: int) -> FileStorage:
    """Fill an array of the base with a value; return the storage under another URL."""
    location = plan.base.manifest.arrays[name]
    content = np.load(storage.local(f"base/{location.file}"))
    content[location.start :].view(location.type)[: location.count] = value
    buffer = io.BytesIO()
    np.save(buffer, content)
    data = buffer.getvalue()
    # Update the digest in the manifest too, as if a faulty compiler had written the array.
    files = {**plan.base.manifest.files, location.file: PlanFile(len(data), hashlib.sha256(data).hexdigest())}
    storage.replace("base/manifest.json", replace(plan.base.manifest, files=files).to_json())
    return replace_file(storage, location.file, data)


def test_ids_out_of_range_are_rejected(storage: FileStorage, plan: Plan) -> None:
    with pytest.raises(CorruptDataError, match="targets"):
        load(fill_array(storage, plan, "targets.values", 2**30), PlanVersion(1, "base"))


@pytest.mark.parametrize("name", ["arrays.npy", "manifest.json"])
def test_flipped_bit_anywhere_is_rejected(storage: FileStorage, plan: Plan, name: str) -> None:
    content = storage.read(f"base/{name}")
    for position in range(0, len(content), max(1, len(content) // 97)):
        data = bytearray(content)
        data[position] ^= 0x10
        with pytest.raises(CorruptDataError, match=f"base/{name}"):
            load(replace_file(storage, name, bytes(data)), PlanVersion(1, "base"))
        with pytest.raises(CorruptDataError, match=f"base/{name}"):
            verify(storage, "base")


@pytest.mark.parametrize(
    ("array", "message"),
    [
        ("streams.stream", "streams"),
        ("streams.offsets", "streams"),
        ("streams.word_keys.values", "word_keys"),
        ("streams.vocabulary.chunk_offsets", "vocabulary"),
        ("key_slots", "key_slots"),
        ("atom_keys", "atom_keys"),
    ],
)
def test_matcher_rejects_damaged_layout(storage: FileStorage, plan: Plan, array: str, message: str) -> None:
    loaded = load(fill_array(storage, plan, f"layout.{array}", 10_000), PlanVersion(1, "base"))
    with pytest.raises(CorruptDataError, match=message):
        build_matcher(loaded)


@pytest.mark.parametrize(
    ("array", "message"), [("layout.streams.checks.values", "checks"), ("clauses.values", "clauses")]
)
def test_rarely_read_arrays_are_validated_at_first_use(storage: FileStorage, array: str, message: str) -> None:
    condition = And((word("rock"), RegularExpression(Attribute("title"), "r.c+k")))
    compile_base(storage, "base", [PlanQuery(10)], {10: Filter(Read(1), condition)})
    intact = load(storage, PlanVersion(1, "base"))
    matcher = build_matcher(load(fill_array(storage, intact, array, 10_000), PlanVersion(1, "base")))
    items = [ItemBatch.of([Item("One", "1", {"title": (title,)})], {"One": 1}) for title in ("jazz", "rock")]
    assert matcher.match(items[0]).total == 0
    with pytest.raises(CorruptDataError, match=message):
        matcher.match(items[1])


def test_large_predicate_table_has_its_own_file_that_matching_does_not_read(storage: FileStorage) -> None:
    views: dict[int, Node] = {
        10 + n: Filter(Read(1), And((word(f"word{n}"), word(f"other{n % 100}")))) for n in range(20_000)
    }
    compile_base(storage, "base", [PlanQuery(feed) for feed in views], views)
    intact = load(storage, PlanVersion(1, "base"))
    files = {name: location.file for name, location in intact.base.manifest.arrays.items()}
    assert files["clauses.values"] == files["layout.streams.checks.values"] == "predicates.npy"
    assert files["query_ids"] == files["layout.streams.stream"] == "arrays.npy"
    batch = ItemBatch.of([Item("One", "1", {"title": ("word7 other7",)})], {"One": 1})
    matcher = build_matcher(load(fill_array(storage, intact, "clauses.values", 2**30), PlanVersion(1, "base")))
    assert matcher.match(batch).queries.tolist() == [17]


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"format": 99}, NewerWorkspaceError),
        ({"format": FORMAT + 1}, NewerWorkspaceError),
        ({"format": FORMAT - 1}, CorruptDataError),
        ({"kind": "other"}, CorruptDataError),
        ({"files": {"../escape.npy": {"size": 1, "sha256": ""}}}, CorruptDataError),
        ({"arrays": {"query_ids": ["elsewhere.npy", 0, 1, "int64"]}}, CorruptDataError),
        ({"arrays": {"query_ids": ["arrays.npy", 0, 10**9, "int64"]}}, CorruptDataError),
        ({"arrays": {"query_ids": ["arrays.npy", 0, 1]}}, CorruptDataError),
        ({"arrays": {}}, CorruptDataError),
        ({"counts": None}, CorruptDataError),
    ],
)
def test_invalid_manifest_is_rejected(
    storage: FileStorage, plan: Plan, change: dict[str, Any], error: type[Exception]
) -> None:
    value = decode_checked_json(storage.read("base/manifest.json"))
    with pytest.raises(error):
        load(replace_file(storage, "manifest.json", encode_checked_json(value | change)), PlanVersion(1, "base"))
    with pytest.raises(CorruptDataError, match=r"manifest\.json"):
        PlanManifest.from_json("base", b"{")


def test_explanation_lists_shared_clauses_and_totals(plan: Plan) -> None:
    names = {1: "News", 2: "City Herald", 10: "Concerts"}
    explained = explain_query(10, plan, names)
    (branch,) = explained.branches
    assert branch.sources == ("News", '"City Herald"')
    assert branch.predicate == "title contains 'rock' and title contains 'concert'"
    (matched,) = branch.matched
    assert matched.to_json()["anchor"] == "title contains 'concert'"
    assert branch.exact
    assert branch.queries == 2
    assert {clause.text: clause.uses for clause in branch.clauses}["title contains 'rock'"] == 2
    assert explained.totals["queries"] == 4
    assert explained.totals["bytes"] > 0
    assert json.loads(json.dumps(explained.to_json()))["branches"][0]["queries"] == 2
    assert any("found by: title contains 'concert'" in line for line in explained.lines())


def test_explanation_of_inexact_predicate_shows_the_deciding_formula(plan: Plan) -> None:
    (branch,) = explain_query(12, plan).branches
    assert not branch.exact
    assert branch.decided_by is not None
    assert "title contains 'a11' and title contains 'b11'" in branch.decided_by


def test_removed_or_unknown_query_cannot_be_explained(plan: Plan) -> None:
    assert explain_query(14, plan).part == "delta"
    for missing in (11, 99):
        with pytest.raises(NotFoundError, match=f"#{missing} is not in the plan"):
            explain_query(missing, plan)


def test_part_written_early_gets_its_starts_when_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = FileStorage(f"file://{tmp_path}")
    logical = optimize(QUERIES, VIEWS)
    monkeypatch.setattr(store, "_EARLY_BYTES", 0)
    part = store.start_base(storage, "base", logical)
    assert not store.is_written(storage, "base"), "an unfinished folder is not a plan"
    written_early = {file.path: file.modified for file in storage.files("base")}
    with_starts = replace(logical, query_since=logical.query_since + 77)
    part.finish(with_starts)
    verify(storage, "base")
    loaded = load(storage, PlanVersion(1, "base")).base.logical
    assert loaded.query_since.tolist() == with_starts.query_since.tolist()
    assert loaded.query_ids.tolist() == logical.query_ids.tolist()
    now = {file.path: file.modified for file in storage.files("base")}
    assert {path: now[path] for path in written_early} == written_early, "files written early were written again"
