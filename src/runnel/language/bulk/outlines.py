"""Outlines: the shape of a statement with its conditions left out, so that few outlines stand for very many shapes.

In: shapes and lexemes. Out: an outline, with a mark for every atom and every group in parentheses, and the
expressions that the marks stand for. An atom is an atom wherever one may stand, and so is a group: both are a
`primary` of the grammar. So what was seen once as one is taken for one again; if the rest of the statement is known
too, the grammar, which is unambiguous, has no other way to read it. Atoms hold no places, so each is built once for
all that say it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from runnel.algebra.nodes.expressions import Expression

MARK = " "
"""Stands for an expression; no class of lexemes has this letter."""

Said = tuple[str, ...]
AtomMaker = Callable[[Said], Expression]
GroupMaker = Callable[[Sequence[Expression]], Expression]
Memos = defaultdict[str, dict[Said, Expression]]
"""Atoms by what they say, for each form of atom; of one script."""

Outlined = tuple[str, list[Expression], list[int]]
"""An outline, the expressions of its marks, and of how many lexemes each is made."""

_NOTHING = re.compile("((?!))")
_ATOMS_KEPT = 200_000


class Outlines:
    """The atoms and groups that were seen, by their shapes."""

    def __init__(self) -> None:
        self._atoms: dict[str, AtomMaker] = {}
        self._groups: dict[str, GroupMaker] = {}
        self._atom_pattern = self._group_pattern = _NOTHING

    def __len__(self) -> int:
        return len(self._atoms) + len(self._groups)

    def add(self, atoms: dict[str, AtomMaker], groups: dict[str, GroupMaker]) -> None:
        """Know more atoms and groups. Others may be reading: what is known stays known."""
        self._atoms |= {shape: maker for shape, maker in atoms.items() if shape not in self._atoms}
        self._groups |= {shape: maker for shape, maker in groups.items() if shape not in self._groups}
        self._atom_pattern, self._group_pattern = _longest_first(self._atoms), _longest_first(self._groups)

    def outline(self, shape: str, lexemes: list[str], memos: Memos) -> Outlined:
        """The outline of a statement."""
        pieces = self._atom_pattern.split(shape)
        values: list[Expression] = []
        widths: list[int] = []
        place = 0
        for number in range(1, len(pieces), 2):
            atom = pieces[number]
            place += len(pieces[number - 1])
            end = place + len(atom)
            said = tuple(lexemes[place:end])
            memo = memos[atom]
            value = memo.get(said)
            if value is None:
                if len(memo) >= _ATOMS_KEPT:
                    memo.clear()
                value = memo[said] = self._atoms[atom](said)
            values.append(value)
            widths.append(end - place)
            place = end
        outline = MARK.join(pieces[::2])
        while values:
            pieces = self._group_pattern.split(outline)
            if len(pieces) == 1:
                break
            values, widths = self._grouped(pieces, values, widths)
            outline = MARK.join(pieces[::2])
        return outline, values, widths

    def _grouped(
        self, pieces: list[str], values: list[Expression], widths: list[int]
    ) -> tuple[list[Expression], list[int]]:
        """The expressions and widths after groups have become marks; `pieces` are groups and what lies between."""
        grouped: list[Expression] = []
        sizes: list[int] = []
        at = 0
        for number, piece in enumerate(pieces):
            end = at + piece.count(MARK)
            if number % 2:
                grouped.append(self._groups[piece](values[at:end]))
                sizes.append(len(piece) - (end - at) + sum(widths[at:end]))
            else:
                grouped += values[at:end]
                sizes += widths[at:end]
            at = end
        return grouped, sizes


def _longest_first(shapes: Iterable[str]) -> re.Pattern[str]:
    """Finds shapes; of two that begin at one place the longer."""
    found = "|".join(re.escape(shape) for shape in sorted(shapes, key=len, reverse=True))
    return re.compile(f"({found})") if found else _NOTHING
