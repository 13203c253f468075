"""Summaries of publications (§4.3): the common edges of similar publications, and how many subscriptions they match.

This is the paper's `statCollection`, and it does not slow down matching. As written, the paper's algorithm never
ends: the publication must be replaced by the merged one (line 4), and the summary that it was merged with must be
removed from the matrix. The paper's summary is the intersection of its publications, which shrinks quickly: if a
tenth of the edges is noise, a third is left after ten publications. Here an edge stays as long as at least the
fraction `share` of the publications has it, by default half; with 1, the summaries are the paper's. All numbers,
booleans, times and dates count as one value, which satisfies every condition, because a summary describes which edges
occur together, not which prices.
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
    """How many publications have each edge, their number, and the total number of subscriptions that they matched."""

    counts: dict[Triple, int]
    publications: int
    frequency: int

    def edges(self, share: float) -> frozenset[Triple]:
        """Return the edges that occur in at least the fraction `share` of the publications."""
        return frozenset(edge for edge, count in self.counts.items() if count >= share * self.publications)


class PublicationSummaries:
    """The paper's matrix E_M: at most `most` summaries, by their edges.

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
        self._by_edge: dict[Triple, set[int]] = {}
        self._next = 0

    def __len__(self) -> int:
        return len(self._summaries)

    @property
    def frequency(self) -> int:
        """The total number of matches of the publications of all summaries."""
        return sum(summary.frequency for summary in self._summaries.values())

    def observe(self, triples: Iterable[Triple], *, matched: int) -> None:
        """Add a publication and the number of subscriptions that it matched."""
        summary = Summary({_without_values(triple): 1 for triple in triples}, 1, matched)
        similar = self._most_similar(summary)
        while similar is not None:
            summary = self._merge(summary, self._remove(similar))
            similar = self._most_similar(summary)
        self._add(summary)
        if len(self._summaries) > self._most:
            self._remove(min(self._summaries, key=lambda number: (self._summaries[number].frequency, number)))

    def by_frequency(self) -> list[frozenset[Triple]]:
        """Return the edges of each summary, those with the most matches first."""
        order = sorted(self._summaries, key=lambda number: (-self._summaries[number].frequency, number))
        return [self._edges[number] for number in order]

    def _most_similar(self, summary: Summary) -> int | None:
        """Return the most similar summary by Jaccard similarity of edges, or None if none reaches the threshold."""
        edges = summary.edges(self._share)
        shared = Counter(number for edge in edges for number in self._by_edge.get(edge, ()))
        best, highest = None, self._threshold
        for number, count in shared.items():
            similarity = count / (len(edges) + len(self._edges[number]) - count)
            if similarity > highest or (similarity == highest and (best is None or number < best)):
                best, highest = number, similarity
        return best

    def _merge(self, first: Summary, second: Summary) -> Summary:
        counts = Counter(first.counts)
        counts.update(second.counts)
        publications = first.publications + second.publications
        # Drop edges that are rare among many publications: they will not become common, and summaries stay small.
        least = self._share * publications / 4
        kept = {edge: count for edge, count in counts.items() if count >= least}
        return Summary(kept, publications, first.frequency + second.frequency)

    def _add(self, summary: Summary) -> None:
        number, edges = self._next, summary.edges(self._share)
        if edges:
            self._next += 1
            self._summaries[number], self._edges[number] = summary, edges
            for edge in edges:
                self._by_edge.setdefault(edge, set()).add(number)

    def _remove(self, number: int) -> Summary:
        for edge in self._edges.pop(number):
            numbers = self._by_edge[edge]
            numbers.discard(number)
            if not numbers:
                del self._by_edge[edge]
        return self._summaries.pop(number)


def _without_values(triple: Triple) -> Triple:
    subject, label, object_ = triple
    return (subject, label, ANY) if object_[0] == '"' and known_term(object_).sort >= Sort.NUMBER else triple
