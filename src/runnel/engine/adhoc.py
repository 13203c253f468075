"""Matching outside the stream: queries compiled for the moment, against items of the past or of the caller."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt

from runnel.algebra.query import Node
from runnel.engine.root import Root
from runnel.log.storage import FileStorage
from runnel.plan.logical import PlanQuery
from runnel.plan.store import Plan, PlanVersion, load


@contextmanager
def adhoc_plan(queries: Sequence[PlanQuery], definitions: Mapping[int, Node]) -> Iterator[Plan]:
    """A plan of some queries, compiled into a folder that goes away."""
    with tempfile.TemporaryDirectory(prefix="runnel-") as folder:
        storage = FileStorage(Path(folder).as_uri())
        # Imported here and where else plans are made: the compiler of kernels takes a second to load.
        from runnel.matching.compile import compile_base

        compile_base(storage, "plan", queries, definitions)
        yield load(storage, PlanVersion(0, "plan", None))


def past_matches(
    root: Root, feed: int, definitions: Mapping[int, Node], after: int, upto: int
) -> npt.NDArray[np.int64]:
    """The sequences in (after, upto] of the items that a feed would have had."""
    found = [np.empty(0, dtype=np.int64)]
    with adhoc_plan([PlanQuery(feed)], definitions) as plan:
        from runnel.matching.build import build_matcher

        matcher = build_matcher(plan)
        for batch in root.items.read(after, upto):
            matches = matcher.match(batch)
            found.append(batch.sequences[np.diff(matches.offsets) > 0])
    return np.concatenate(found)
