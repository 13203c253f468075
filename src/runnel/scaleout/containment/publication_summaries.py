"""Summaries of publications (§4.3): publications in, what similar ones have in common out, with how many want it.

The paper's `statCollection`, off the way of matching. As written it never ends: the publication must become the
merged one (line 4), and the summary that it was merged with must leave the matrix. The paper's summary is the
intersection of its publications, which withers: where a tenth of the edges is noise, ten publications leave a
third. Here an edge stays while a share of the publications has it, half of them unless told otherwise; with a share
of 1 it is the paper's. And numbers, truths, moments and days count as one value, which meets every demand: a
summary says which edges come together, not which prices.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from runnel.algebra.graphs.rdf_terms import Sort, known_term
from runnel.model.graph import Triple
from runnel.scaleout.containment.pattern_store import ANY


@dataclass(frozen=True)
class Summary:
    """How often each edge came, in how many publications, and how many subscriptions these matched in all."""

    counts: dict[Triple, int]
    publications: int
    frequency: int

    def edges(self, share: float) -> frozenset[Triple]:
        """The edges that at least a share of the publications has."""
        return frozenset(edge for edge, count in self.counts.items() if count >= share * self.publications)


class PublicationSummaries:
    """The paper's matrix E_M: summaries by their edges, at most so many.

    >>> summaries = PublicationSummaries(threshold=0.5)
    >>> one, two = ("<urn:a>", "<urn:p>", "<urn:b>"), ("<urn:a>", "<urn:q>", "<urn:c>")
    >>> summaries.observe([one, two], matched=3)
    >>> summaries.observe([one], matched=2)
    >>> len(summaries), [sorted(edges) == [one, two] for edges in summaries.by_frequency()]
    (1, [True])
    """

    def __init__(self, *, threshold: float = 0.4, share: float = 0.5, most: int = 1000) -> None:
        self._threshold, self._share, self._most = threshold, share, most
        self._summaries: dict[int, Summary] = {}
        self._edges: dict[int, frozenset[Triple]] = {}
        self._having: dict[Triple, set[int]] = {}
        self._next = 0

    def __len__(self) -> int:
        return len(self._summaries)

    @property
    def frequency(self) -> int:
        """How many matches the publications of all summaries had."""
        return sum(one.frequency for one in self._summaries.values())

    def observe(self, triples: Iterable[Triple], *, matched: int) -> None:
        """Take in a publication and how many subscriptions it matched."""
        summary = Summary({_without_values(one): 1 for one in triples}, 1, matched)
        similar = self._most_similar(summary)
        while similar is not None:
            summary = self._merged(summary, self._take(similar))
            similar = self._most_similar(summary)
        self._put(summary)
        if len(self._summaries) > self._most:
            self._take(min(self._summaries, key=lambda one: (self._summaries[one].frequency, one)))

    def by_frequency(self) -> list[frozenset[Triple]]:
        """The edges of each summary, the most wanted first."""
        order = sorted(self._summaries, key=lambda one: (-self._summaries[one].frequency, one))
        return [self._edges[one] for one in order]

    def _most_similar(self, summary: Summary) -> int | None:
        """The summary that shares the largest part of all edges that the two have, if that is large enough."""
        edges = summary.edges(self._share)
        shared = Counter(one for edge in edges for one in self._having.get(edge, ()))
        best, most = None, self._threshold
        for one, count in shared.items():
            similarity = count / (len(edges) + len(self._edges[one]) - count)
            if similarity > most or (similarity == most and (best is None or one < best)):
                best, most = one, similarity
        return best

    def _merged(self, first: Summary, second: Summary) -> Summary:
        counts = Counter(first.counts)
        counts.update(second.counts)
        publications = first.publications + second.publications
        # What is rare among many publications will not become common; without it a summary stays small.
        least = self._share * publications / 4
        kept = {edge: count for edge, count in counts.items() if count >= least}
        return Summary(kept, publications, first.frequency + second.frequency)

    def _put(self, summary: Summary) -> None:
        number, edges = self._next, summary.edges(self._share)
        if edges:
            self._next += 1
            self._summaries[number], self._edges[number] = summary, edges
            for edge in edges:
                self._having.setdefault(edge, set()).add(number)

    def _take(self, number: int) -> Summary:
        for edge in self._edges.pop(number):
            having = self._having[edge]
            having.discard(number)
            if not having:
                del self._having[edge]
        return self._summaries.pop(number)


def _without_values(triple: Triple) -> Triple:
    subject, label, object_ = triple
    return (subject, label, ANY) if object_[0] == '"' and known_term(object_).sort >= Sort.NUMBER else triple
