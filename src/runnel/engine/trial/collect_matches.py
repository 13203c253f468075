"""Match items once for a preview, for a test, or for the past items of a new subscription.

In: a trial matcher, and items of the log or of the caller. Out: the number of matches per query, the items that
matched, and the first or the newest of them with their bindings. Nothing is written.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import numpy as np
import numpy.typing as npt

from runnel.catalog.logs.undecided import supplements_between
from runnel.catalog.store.connection import now
from runnel.catalog.store.sequencer import last_sequence
from runnel.engine.actors import Actor, names_for
from runnel.engine.trial.trial_matcher import JoinedMatcher, TrialMatcher
from runnel.engine.workspace import Workspace
from runnel.model.annotation import Annotation
from runnel.model.bindings import NO_BINDINGS, Bindings
from runnel.model.item import Item
from runnel.model.item_batch import ItemBatch
from runnel.model.match import Failure

SHOWN = 20
"""Default number of items in the answer of a trial."""

_MAX_FAILURES = 20


@dataclass(frozen=True, slots=True)
class TrialMatches:
    """The matches of a trial.

    `counts` is the number of matches per query, and `sequences` are the items that any query matched. `kept` contains
    the items to show: by sequence, the matching queries with their bindings. `annotations` are those of the items to
    show, by query and sequence. `failures` are the first failures, each with its sequence.
    """

    counts: Mapping[int, int]
    sequences: npt.NDArray[np.int64]
    kept: Mapping[int, Mapping[int, Bindings]]
    failures: Sequence[tuple[int, Failure]] = ()
    annotations: Mapping[tuple[int, int], tuple[Annotation, ...]] = field(default_factory=dict)


def collect_matches(
    matcher: TrialMatcher | JoinedMatcher,
    batches: Iterable[ItemBatch],
    *,
    limit: int | None,
    newest: bool = True,
    after: int = 0,
    repeated: Collection[int] = (),
) -> TrialMatches:
    """Match batches in the order of the log, and keep the newest (or first) `limit` matching items (None: all).

    Items up to the sequence `after` are matched only to build up the state of gates. Sequences in `repeated` are
    later copies of an item for calling operators again, and are not counted.
    """
    counts: Counter[int] = Counter()
    sequences = [np.empty(0, dtype=np.int64)]
    kept: deque[tuple[int, dict[int, Bindings]]] = deque(maxlen=limit)
    failures: list[tuple[int, Failure]] = []
    for batch in batches:
        matches = matcher.match(batch)
        sizes = np.diff(matches.offsets)
        counted = (batch.sequences > after) & ~np.isin(batch.sequences, list(repeated))
        queries, numbers = np.unique(matches.queries[np.repeat(counted, sizes)], return_counts=True)
        counts.update(dict(zip(queries.tolist(), numbers.tolist(), strict=True)))
        rows = np.flatnonzero((sizes > 0) & counted)
        sequences.append(batch.sequences[rows])
        if limit is not None:
            rows = rows[max(0, len(rows) - limit) :] if newest else rows[: limit - len(kept)]
        bindings = matcher.bindings(rows)
        for row in rows.tolist():
            bound = {query: bindings.get((row, query), NO_BINDINGS) for query in matches.row(row).tolist()}
            kept.append((int(batch.sequences[row]), bound))
        remaining = _MAX_FAILURES - len(failures)
        failures += [(int(batch.sequences[failure.row]), failure) for failure in matches.failures[:remaining]]
    annotations = matcher.annotations
    shown = [(query, sequence) for sequence, bound in kept for query in bound]
    own = {key: annotations[key] for key in shown if key in annotations}
    return TrialMatches(counts, np.concatenate(sequences), dict(kept), failures, own)


def collect_from_log(
    workspace: Workspace,
    matcher: TrialMatcher | JoinedMatcher,
    after: int,
    upto: int,
    *,
    limit: int | None,
    start: int | None = None,
) -> TrialMatches:
    """Match the items in (after, upto] of the item log. If `start` is given, gates also count items after it."""
    with workspace.catalog.read() as connection:
        repeated = [supplement.sequence for supplement in supplements_between(connection, after, upto)]
    batches = workspace.items.read(after if start is None else start, upto)
    return collect_matches(matcher, batches, limit=limit, after=after, repeated=repeated)


@dataclass(frozen=True, slots=True)
class PastItems:
    """The items in (after, upto] of the log, as an actor may read them. `names` are the actor's feeds by id."""

    workspace: Workspace
    actor: Actor
    after: int
    upto: int
    names: dict[int, str]

    @staticmethod
    def of(workspace: Workspace, actor: Actor, back: timedelta) -> PastItems:
        """Return the items that were accepted during the last `back`."""
        with workspace.catalog.read() as connection:
            begin = now(connection) - int(back.total_seconds() * 1e6)
            upto = last_sequence(connection)
            names = names_for(connection, actor)
        return PastItems(workspace, actor, workspace.items.sequence_before(begin), upto, names)

    def count(self) -> int:
        """Return the number of items. For an owner, items of other owners are not counted."""
        if self.actor.is_admin:
            return self.upto - self.after
        return self.workspace.items.count(self.names.keys(), self.after, self.upto)

    def newest_first(self, sequences: Iterable[int]) -> list[Item]:
        """Return the items with these sequences, newest first. The sequences must be ascending."""
        ascending = [item for batch in self.workspace.items.get(list(sequences)) for item in batch.items(self.names)]
        return ascending[::-1]
