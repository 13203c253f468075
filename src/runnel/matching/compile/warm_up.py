"""Prepare kernels before the first item arrives: compile them, or load them from disk if they were compiled earlier.

Spark forks its workers from one process. Kernels that this process has prepared are ready in all workers.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from runnel.algebra.nodes.attributes import Attribute
from runnel.algebra.nodes.expressions import And, Compare, Contains
from runnel.algebra.nodes.query import Filter, Node, Read
from runnel.kernel_cache import note_kernels
from runnel.logs.matches.match_files import match_records
from runnel.matching.compile.build_matcher import build_matcher
from runnel.matching.compile.compile_plan import compile_base, compile_delta
from runnel.matching.costs.sample_costs import CostSampler
from runnel.model.item import Item
from runnel.model.item_batch import ItemBatch
from runnel.plan.logical_plan import PlanQuery
from runnel.plan.store import PlanVersion, load
from runnel.storage.file_storage import FileStorage


def warm_up() -> int:
    """Compile and match queries that use the common kernels, and return the number of matches.

    The kernels for trees, graphs and operator orders are left out: few workspaces need them, and compiling them takes
    another minute.

    >>> warm_up()
    2
    """
    title, price = Attribute("title"), Attribute("price")
    indexed = And((Contains(title, ("rock",)), Contains(title, ("red", "rock")), Compare(price, ">", 3.0)))
    evaluated = And((Contains(title, ("rock",)), Compare(title, ">", "a")))
    definitions: dict[int, Node] = {2: Filter(Read(1), indexed), 3: Filter(Read(1), evaluated)}
    items = ItemBatch.of([Item("One", "1", {"title": ("red rock",), "price": (5.0,)})], {"One": 1})
    with tempfile.TemporaryDirectory(prefix="runnel-warm-") as folder:
        storage = FileStorage(Path(folder).as_uri())
        compile_base(storage, "base", [PlanQuery(2)], definitions)
        compile_delta(storage, "delta", [PlanQuery(3)], definitions, (), "base")
        plan = load(storage, PlanVersion(1, "base", "delta"))
        matches = build_matcher(plan).match(items)
        CostSampler(plan).sample(items, 0)
    match_records(items.sequences, matches)
    note_kernels()
    return matches.total
