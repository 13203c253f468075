"""Match publications against subscriptions in two stages (§4.5): roots and mergers, then the patterns below them.

The stages are separate, so that a cluster can run the first on its server and the second, by root, on its back ends.
The paper's `filtering` loses a root that holds and has patterns below it, because line 8 runs only if there are none.
Here both are found.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from runnel.algebra.graphs.graph_patterns import Graph
from runnel.arrays import Array
from runnel.model.graph import Triple
from runnel.scaleout.containment.containment_index import ContainmentIndex
from runnel.scaleout.containment.containment_trees import seek_below
from runnel.scaleout.containment.edge_postings import MERGER
from runnel.scaleout.containment.homomorphism import NOBODY
from runnel.scaleout.containment.merge_roots import SHARES, group_patterns
from runnel.scaleout.containment.publication_summaries import PublicationSummaries


@dataclass(frozen=True)
class RootMatches:
    """Subscriptions that hold for a publication, in ascending order, and those undecided after too many steps."""

    subscriptions: list[int]
    undecided: list[int]


@dataclass(frozen=True)
class Counters:
    """Counters of matching: patterns checked and holding in stage one, and patterns checked in stage two.

    A false positive is a merger that held for a publication for which no pattern below it holds.
    """

    publications: int = 0
    roots_checked: int = 0
    roots_held: int = 0
    mergers_held: int = 0
    members_checked: int = 0
    false_positives: int = 0


class RootIndex:
    """Subscriptions below as few roots as possible.

    >>> from runnel.algebra.nodes.calls import Variable
    >>> from runnel.algebra.graphs.edges import Comparison, Edge
    >>> year = (Edge(Variable("p"), "<urn:year>", Variable("y")),)
    >>> index = RootIndex()
    >>> index.subscribe(1, Graph(year))
    >>> index.subscribe(2, Graph(year, Comparison(Variable("y"), "<", '"2"')))
    >>> index.match([("<urn:a>", "<urn:year>", '"1"')]).subscriptions, len(index), index.root_count
    ([1, 2], 2, 1)

    If there are `upper` roots, they are merged until there are `lower`. Without `upper`, only `merge` merges them.
    """

    def __init__(
        self, *, upper: int | None = None, lower: int | None = None, summaries: PublicationSummaries | None = None
    ) -> None:
        self.index = ContainmentIndex()
        self.summaries = PublicationSummaries() if summaries is None else summaries
        self.counters = Counters()
        self._upper = self._trigger = upper
        self._lower = lower if lower is not None else (upper or 0) // 2

    def __len__(self) -> int:
        return len(self.index)

    @property
    def root_count(self) -> int:
        """The number of roots and mergers, which is the size of the index."""
        return self.index.root_count

    def subscribe(self, subscription: int, graph: Graph) -> None:
        """Add a subscription under a number that is not in use."""
        self.index.insert(subscription, graph)
        if self._trigger is not None and self._upper is not None and self.root_count >= self._trigger:
            self.merge(self._lower)
            # If little could be merged, wait until there are enough new roots.
            self._trigger = max(self._upper, self.root_count + (self._upper - self._lower + 1) // 2)

    def unsubscribe(self, subscription: int) -> None:
        """Remove a subscription."""
        self.index.remove(subscription)

    def observe(self, publication: Iterable[Triple]) -> None:
        """Add a sampled publication to the statistics for merging. Not meant for every publication."""
        triples = list(publication)
        counters = self.counters
        matches = self.match(triples)
        self.counters = counters
        self.summaries.observe(triples, matched=len(matches.subscriptions))

    def merge(self, lower: int) -> int:
        """Merge roots that match the same summary, most frequent first, until `lower` are left.

        Return by how many the number of roots decreased.
        """
        before = self.root_count
        for share in SHARES:
            for edges in self.summaries.by_frequency():
                if self.root_count <= lower:
                    return before - self.root_count
                held = self.roots_of(self.encoded(edges))
                graphs = [(root, self.index.store.graph(root)) for root in held[held >= 0].tolist()]
                for group in group_patterns(graphs, share, self.root_count - lower):
                    self.index.merge(group.common)
        return before - self.root_count

    def match(self, publication: Iterable[Triple]) -> RootMatches:
        """Return the subscriptions that hold for a publication. This runs both stages."""
        targets = self.encoded(publication)
        roots = self.roots_of(targets)
        members = self.members_of(targets, roots)
        return self._matches_of(np.concatenate([roots, members]))

    def encoded(self, publication: Iterable[Triple]) -> Array:
        """Encode a publication. The result is valid until the next call or the next change of subscriptions."""
        return self.index.store.triples(publication)

    def roots_of(self, targets: Array) -> Array:
        """Stage one: return the numbers of the roots and mergers that hold, or -1 - number if undecided."""
        index, buffer = self.index, self.index.result_buffer()
        _, before = index.counters
        count = index.seek(targets, 0, len(targets), NOBODY)
        _, after = index.counters
        roots = buffer[:count].copy()
        self._count(publications=1, roots_checked=after - before, roots_held=count)
        return roots

    def members_of(self, targets: Array, roots: Array) -> Array:
        """Stage two: return the numbers of the patterns that hold below the roots of stage one, as encoded there."""
        index, buffer = self.index, self.index.result_buffer()
        numbers = np.where(roots < 0, -1 - roots, roots)
        hits = np.zeros(len(numbers), np.int64)
        checked = seek_below(index.store.held, index.trees.links, numbers, targets, buffer, hits)
        mergers = index.kinds[numbers] == MERGER
        self._count(
            members_checked=checked,
            mergers_held=int(np.count_nonzero(mergers)),
            false_positives=int(np.count_nonzero(mergers & (hits == 0))),
        )
        return buffer[: int(hits.sum())].copy()

    def _matches_of(self, patterns: Array) -> RootMatches:
        owners = self.index.owners
        held, undecided = owners[patterns[patterns >= 0]], owners[-1 - patterns[patterns < 0]]
        return RootMatches(sorted(held[held >= 0].tolist()), sorted(undecided[undecided >= 0].tolist()))

    def _count(self, **increments: int) -> None:
        counts = {name: getattr(self.counters, name) + number for name, number in increments.items()}
        self.counters = Counters(**{**self.counters.__dict__, **counts})
