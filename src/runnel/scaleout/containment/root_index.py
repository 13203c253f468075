"""The index of roots: subscriptions and publications in, which subscriptions hold of each out, in two stages (§4.5).

Stage one asks roots and mergers, stage two what lies below those that hold. The two are apart, so that a cluster
can keep the first at its server and the second, by root, at its back ends. The paper's `filtering` loses a root
that holds and has something below it (line 8 runs only where there is nothing): here both are found.
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
    """Subscriptions that hold of a publication, ascending, and those that too many steps left open."""

    subscriptions: list[int]
    undecided: list[int]


@dataclass(frozen=True)
class Counters:
    """What matching did so far: patterns asked in stage one, and what held there; members asked in stage two.

    A false positive is a merger that held of a publication of which nothing below it holds.
    """

    publications: int = 0
    roots_checked: int = 0
    roots_held: int = 0
    mergers_held: int = 0
    members_checked: int = 0
    false_positives: int = 0


class RootIndex:
    """Subscriptions under as few roots as possible.

    >>> from runnel.algebra.nodes.calls import Variable
    >>> from runnel.algebra.graphs.edges import Comparison, Edge
    >>> year = (Edge(Variable("p"), "<urn:year>", Variable("y")),)
    >>> index = RootIndex()
    >>> index.subscribe(1, Graph(year))
    >>> index.subscribe(2, Graph(year, Comparison(Variable("y"), "<", '"2"')))
    >>> index.match([("<urn:a>", "<urn:year>", '"1"')]).subscriptions, len(index), index.root_count
    ([1, 2], 2, 1)

    `upper` is the number of roots at which they are merged, until there are `lower`; without it only `merge` merges.
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
        """How many roots and mergers there are: the size of the index."""
        return self.index.root_count

    def subscribe(self, subscription: int, graph: Graph) -> None:
        """Take in a subscription under a number that is not in use."""
        self.index.insert(subscription, graph)
        if self._trigger is not None and self._upper is not None and self.root_count >= self._trigger:
            self.merge(self._lower)
            # Where little could be merged, the next try waits until there is more to merge.
            self._trigger = max(self._upper, self.root_count + (self._upper - self._lower + 1) // 2)

    def unsubscribe(self, subscription: int) -> None:
        """Take out a subscription."""
        self.index.remove(subscription)

    def observe(self, publication: Iterable[Triple]) -> None:
        """Take a sampled publication into the statistics that merging goes by; not meant for every publication."""
        triples = list(publication)
        counters = self.counters
        found = self.match(triples)
        self.counters = counters
        self.summaries.observe(triples, matched=len(found.subscriptions))

    def merge(self, lower: int) -> int:
        """Merge roots that summaries match, the most wanted first, until there are `lower`; how many are fewer."""
        before = self.root_count
        for share in SHARES:
            for edges in self.summaries.by_frequency():
                if self.root_count <= lower:
                    return before - self.root_count
                held = self.roots_of(self.encoded(edges))
                graphs = [(one, self.index.store.graph(one)) for one in held[held >= 0].tolist()]
                for group in group_patterns(graphs, share, self.root_count - lower):
                    self.index.merge(group.common)
        return before - self.root_count

    def match(self, publication: Iterable[Triple]) -> RootMatches:
        """The subscriptions that hold of a publication: both stages."""
        targets = self.encoded(publication)
        roots = self.roots_of(targets)
        members = self.members_of(targets, roots)
        return self._named(np.concatenate([roots, members]))

    def encoded(self, publication: Iterable[Triple]) -> Array:
        """A publication in numbers, valid until the next one or the next change of subscriptions."""
        return self.index.store.triples(publication)

    def roots_of(self, targets: Array) -> Array:
        """Stage one: the numbers of the roots and mergers that hold; -1 - number where it took too many steps."""
        index, found = self.index, self.index.found()
        _, before = index.counters
        count = index.seek(targets, 0, len(targets), NOBODY)
        _, after = index.counters
        roots = found[:count].copy()
        self._count(publications=1, roots_checked=after - before, roots_held=count)
        return roots

    def members_of(self, targets: Array, roots: Array) -> Array:
        """Stage two: the numbers of what holds below roots, as given by stage one; -1 - number as there."""
        index, found = self.index, self.index.found()
        asked = np.where(roots < 0, -1 - roots, roots)
        hits = np.zeros(len(asked), np.int64)
        checked = seek_below(index.store.held, index.trees.links, asked, targets, found, hits)
        mergers = index.kinds[asked] == MERGER
        self._count(
            members_checked=checked,
            mergers_held=int(np.count_nonzero(mergers)),
            false_positives=int(np.count_nonzero(mergers & (hits == 0))),
        )
        return found[: int(hits.sum())].copy()

    def _named(self, patterns: Array) -> RootMatches:
        owners = self.index.owners
        held, left = owners[patterns[patterns >= 0]], owners[-1 - patterns[patterns < 0]]
        return RootMatches(sorted(held[held >= 0].tolist()), sorted(left[left >= 0].tolist()))

    def _count(self, **more: int) -> None:
        counted = {name: getattr(self.counters, name) + number for name, number in more.items()}
        self.counters = Counters(**{**self.counters.__dict__, **counted})
