"""Select for each join the pairs whose window item is in the item's window.

In: the members of windows in all parts, of which the last has the items of the run, and pairs. Out: the pairs of each
claim, which is an item that reaches a join.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from runnel.arrays import read_only
from runnel.matching.joins.find_pairs import JoinItems, PairFinder, Pairs
from runnel.matching.joins.join_kernels import select_pairs
from runnel.matching.joins.window_members import WindowMembers

Array = npt.NDArray[Any]
Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Selected:
    """Pairs that claims select, in two columns: the claim, and the number of the pair."""

    claims: Numbers
    pairs: Numbers


@dataclass(frozen=True)
class MemberSelection:
    """The members of windows in all parts. `numbers` has for each part the number of each of its windows."""

    parts: Sequence[WindowMembers]
    windows: Numbers
    numbers: Sequence[Numbers]
    _sequences: dict[int, Numbers] = field(default_factory=dict)

    @staticmethod
    def of(parts: Sequence[WindowMembers]) -> MemberSelection:
        """Return the members of parts."""
        windows = np.unique(np.concatenate([part.windows for part in parts]))
        return MemberSelection(parts, windows, [np.searchsorted(windows, part.windows) for part in parts])

    def numbers_of(self, keys: Numbers) -> Numbers:
        """Return the numbers of windows with these keys. A window without items has the number after the last one."""
        numbers = np.searchsorted(self.windows, keys)
        known = np.append(self.windows, -1)
        return np.where(known[numbers] == keys, numbers, len(self.windows))

    def select(
        self, items: JoinItems, pairs: Pairs, owners: Numbers, numbers: Numbers, extents: Numbers, finder: PairFinder
    ) -> Selected:
        """Return the pairs that claims select. Items come after those of all parts but the last.

        `owners` are the ascending positions of each claim's item, `numbers` those of the claims' windows (see
        `numbers_of`), and `extents` their extents as in `Join.split`.
        """
        starts = np.searchsorted(owners, np.arange(len(items) + 1))
        is_ranked = self._are_ranked(finder)
        later = self._later()
        own = self.parts[-1]
        own_bounds = np.searchsorted(finder.parts[-1].sequences, items.sequences)
        selected = []
        for part, positions, rows in finder.split(pairs.rows):
            members = self.parts[part]
            claims, chosen = select_pairs(
                starts,
                numbers,
                extents,
                items.accepted,
                pairs.items[positions],
                rows,
                read_only(finder.parts[part].accepted),
                self._positions(part),
                self.numbers[part],
                members.row_starts,
                members.row_windows,
                members.member_starts,
                members.member_rows,
                later[part],
                is_ranked,
                self._positions(len(self.parts) - 1),
                own.member_starts,
                own.member_rows,
                own_bounds,
                part == len(self.parts) - 1,
            )
            selected.append((claims, positions[chosen]))
        claims = np.concatenate([np.empty(0, np.int64), *(claims for claims, _ in selected)])
        found = np.concatenate([np.empty(0, np.int64), *(found for _, found in selected)])
        is_inside = self._are_inside(claims, found, items, pairs, owners, numbers, extents, is_ranked, finder)
        return Selected(claims[is_inside], found[is_inside])

    def _positions(self, part: int) -> Numbers:
        """Return the position of each window in a part, or -1."""
        positions = np.full(len(self.windows) + 1, -1, dtype=np.int64)
        positions[self.numbers[part]] = np.arange(len(self.numbers[part]))
        return positions

    def _later(self) -> list[Numbers]:
        """Return for each part the number of members of each window in later parts, except the last part."""
        later = [np.zeros(len(self.windows) + 1, dtype=np.int64)]
        for part, numbers in zip(reversed(self.parts[1:-1]), reversed(self.numbers[1:-1]), strict=True):
            added = later[0].copy()
            added[numbers] += part.sizes
            later.insert(0, added)
        return [*later, np.zeros(len(self.windows) + 1, dtype=np.int64)] if len(self.parts) > 1 else later

    def _are_ranked(self, finder: PairFinder) -> npt.NDArray[np.bool_]:
        """Return for each window whether its items ascend from part to part.

        Otherwise, as after a window was filled again, items may be in several parts.
        """
        is_ranked = np.ones(len(self.windows) + 1, dtype=np.bool_)
        newest = np.full(len(self.windows) + 1, -1, dtype=np.int64)
        for part, members, numbers in zip(finder.parts, self.parts, self.numbers, strict=True):
            if len(numbers):
                first, last = members.bounds()
                is_ranked[numbers] &= part.sequences[first] > newest[numbers]
                newest[numbers] = np.maximum(newest[numbers], part.sequences[last])
        return is_ranked

    def _are_inside(
        self,
        claims: Numbers,
        found: Numbers,
        items: JoinItems,
        pairs: Pairs,
        owners: Numbers,
        windows: Numbers,
        extents: Numbers,
        is_ranked: npt.NDArray[np.bool_],
        finder: PairFinder,
    ) -> npt.NDArray[np.bool_]:
        """Return which selected pairs are in windows of a number of items that the kernel could not count."""
        is_inside = np.ones(len(claims), dtype=np.bool_)
        open_ = np.flatnonzero((extents[claims] > 0) & ~is_ranked[windows[claims]])
        for number in np.unique(windows[claims[open_]]).tolist():
            own = open_[windows[claims[open_]] == number]
            sequences = self._sequences_of(number, finder)
            before = np.searchsorted(sequences, items.sequences[owners[claims[own]]])
            upto = np.searchsorted(sequences, finder.sequences_of(pairs.rows[found[own]]), side="right")
            is_inside[own] = before - upto < extents[claims[own]]
        return is_inside

    def _sequences_of(self, number: int, finder: PairFinder) -> Numbers:
        """Return the sequences of the items of a window in all parts."""
        if number not in self._sequences:
            window = int(self.windows[number])
            own = zip(finder.parts, self.parts, strict=True)
            members = [part.sequences[members.rows_of(window)] for part, members in own]
            self._sequences[number] = np.unique(np.concatenate(members))
        return self._sequences[number]
