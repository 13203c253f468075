"""Gates in columns, so that a batch that reaches a hundred thousand gates needs no object per gate.

In: the gates of a plan. Out: arrays, and the distinct rules. Rules that differ only in a number are one rule here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from runnel.algebra.nodes.gate_rules import GateRule, decode_rule, encode_rule
from runnel.plan.gates import NO_GATE, Gate

Array = npt.NDArray[Any]
Numbers = npt.NDArray[np.int64]

_RULES = b"runnel.rules"
_NUMBERS = ("feed", "rule", "number", "since", "window", "window_position")
_SCHEMA = pa.schema(
    [
        *(pa.field(name, pa.int64(), nullable=False) for name in _NUMBERS),
        pa.field("shown", pa.bool_(), nullable=False),
        pa.field("history", pa.binary(16), nullable=False),
        pa.field("definition", pa.binary(16), nullable=False),
    ]
)


@dataclass(frozen=True)
class GateColumns:
    """Gates by ascending feeds, as rows of a table with the columns of a `Gate`.

    The rule of a gate is `rules[rule].with_number(number)`.
    """

    rows: Any
    rules: tuple[GateRule, ...]

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    def __iter__(self) -> Iterator[Gate]:
        return (self.gate(position) for position in range(len(self)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GateColumns) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    @cached_property
    def feeds(self) -> Numbers:
        """The feeds of the gates, ascending."""
        return self._column("feed")

    @cached_property
    def rule_numbers(self) -> Numbers:
        """The position of each gate's rule."""
        return self._column("rule")

    @cached_property
    def numbers(self) -> Numbers:
        """The number of each gate's rule."""
        return self._column("number")

    @cached_property
    def since(self) -> Numbers:
        """The sequence after which each gate's feed starts."""
        return self._column("since")

    @cached_property
    def windows(self) -> Numbers:
        """The feed whose earlier items each gate compares with, or NO_GATE."""
        return self._column("window")

    @cached_property
    def window_positions(self) -> Numbers:
        """The position of the gate of each gate's window, or -1 if it is not among these gates."""
        return self._column("window_position")

    @cached_property
    def shown(self) -> npt.NDArray[np.bool_]:
        """Whether the feed of each gate is a query of the plan part."""
        return np.asarray(self.rows.column("shown").to_numpy(zero_copy_only=False))

    @cached_property
    def counts_after(self) -> Numbers:
        """The sequence after which each gate decides about items. Earlier items pass."""
        reaches_back = np.array([rule.reaches_back for rule in self.rules], dtype=np.bool_)
        return np.where(reaches_back[self.rule_numbers], -1, self.since) if len(self) else self.since

    @cached_property
    def kinds(self) -> Numbers:
        """The position of each gate's kind in `kind_names`."""
        positions = {name: position for position, name in enumerate(self.kind_names)}
        return np.array([positions[rule.kind] for rule in self.rules], dtype=np.int64)[self.rule_numbers]

    @cached_property
    def kind_names(self) -> tuple[str, ...]:
        """The names of the kinds of these gates."""
        return tuple(sorted({rule.kind for rule in self.rules}))

    def _column(self, name: str) -> Numbers:
        return np.asarray(self.rows.column(name).to_numpy())

    def positions(self, feeds: Array) -> Numbers:
        """Return the position of the gate of each feed, or -1 if it has none."""
        if not len(self):
            return np.full(len(feeds), -1, dtype=np.int64)
        found = np.minimum(np.searchsorted(self.feeds, feeds), len(self) - 1)
        return np.where(self.feeds[found] == feeds, found, -1)

    def gate(self, position: int) -> Gate:
        """Return a gate."""
        row = {name: self.rows.column(name)[position].as_py() for name in _SCHEMA.names}
        rule = self.rules[row["rule"]].with_number(row["number"])
        window = None if row["window"] == NO_GATE else row["window"]
        return Gate(row["feed"], rule, row["since"], row["history"], row["shown"], row["definition"], window)

    def history(self, position: int) -> bytes:
        """Return the history of a gate."""
        return bytes(self.rows.column("history")[position].as_py())

    def select(self, positions: Array) -> GateColumns:
        """Return the gates at some positions, which are ascending, with their rules alone."""
        used, numbers = np.unique(self.rule_numbers[positions], return_inverse=True)
        rows = self.rows.take(pa.array(positions))
        rows = rows.set_column(1, _SCHEMA.field("rule"), pa.array(numbers.astype(np.int64)))
        moved = np.full(len(self) + 1, -1, dtype=np.int64)  # the last one stands for no window
        moved[positions] = np.arange(len(positions))
        rows = _with_windows(rows, moved[self.window_positions[positions]])
        return GateColumns(rows, tuple(self.rules[rule] for rule in used.tolist()))

    def to_table(self) -> Any:
        """Return a table to store."""
        rules = json.dumps([encode_rule(rule) for rule in self.rules]).encode()
        return self.rows.replace_schema_metadata({_RULES: rules})

    @staticmethod
    def from_table(table: Any) -> GateColumns:
        """Return the gates of a table that `to_table` returned."""
        rules = json.loads((table.schema.metadata or {})[_RULES])
        return GateColumns(table.replace_schema_metadata(None).combine_chunks(), tuple(map(decode_rule, rules)))

    @staticmethod
    def of(gates: Sequence[Gate]) -> GateColumns:
        """Return gates in columns."""
        rules: dict[GateRule, int] = {}
        columns: dict[str, list[Any]] = {name: [] for name in _SCHEMA.names}
        for gate in sorted(gates, key=lambda gate: gate.feed):
            rule, number = gate.rule.split()
            columns["feed"].append(gate.feed)
            columns["rule"].append(rules.setdefault(rule, len(rules)))
            columns["number"].append(number)
            columns["since"].append(gate.since)
            columns["window"].append(NO_GATE if gate.window is None else gate.window)
            columns["window_position"].append(-1)
            columns["shown"].append(gate.shown)
            columns["history"].append(gate.history)
            columns["definition"].append(gate.definition)
        return _found_windows(GateColumns(pa.table(columns, _SCHEMA), tuple(rules)))

    @staticmethod
    def merge(several: Sequence[GateColumns]) -> GateColumns:
        """Merge the gates of several parts of a plan.

        The part of a plan with the feed itself knows where its gate starts; others may only read the feed.
        """
        if len(several) == 1:
            return several[0]
        rules: dict[GateRule, int] = {}
        tables = []
        for gates in several:
            numbers = np.array([rules.setdefault(rule, len(rules)) for rule in gates.rules], dtype=np.int64)
            own = numbers[gates.rule_numbers] if len(gates) else gates.rule_numbers
            tables.append(gates.rows.set_column(1, _SCHEMA.field("rule"), pa.array(own)))
        rows = pa.concat_tables(tables or [_SCHEMA.empty_table()]).combine_chunks()
        merged = GateColumns(rows, tuple(rules))
        order = np.lexsort((~merged.shown, merged.feeds))
        feeds = merged.feeds[order]
        is_first = np.ones(len(order), dtype=np.bool_)
        is_first[1:] = feeds[1:] != feeds[:-1]
        return _found_windows(GateColumns(rows.take(pa.array(order[is_first])), merged.rules))


def _found_windows(gates: GateColumns) -> GateColumns:
    """Return gates with the positions of their windows."""
    positions = np.full(len(gates), -1, dtype=np.int64)
    has_window = np.flatnonzero(gates.windows != NO_GATE)
    positions[has_window] = gates.positions(gates.windows[has_window])
    return GateColumns(_with_windows(gates.rows, positions), gates.rules)


def _with_windows(rows: Any, positions: Numbers) -> Any:
    return rows.set_column(_SCHEMA.get_field_index("window_position"), _SCHEMA.field("window_position"), [positions])
