"""The reference semantics of variables in conditions: slow, short, and the definition.

A condition has solutions: bindings of its variables that satisfy it. An item matches if there is one. Calls and
item patterns are joined on the variables they share, by their plain values; what a constraint speaks of is bound
next to it, which `close_condition` has checked. An operator that is given variables of a pattern is asked for each
solution.
Variables under `not` are local: that part has no solution of its own. An operator that failed leaves all unknown that
depends on it, and what is unknown does not match (Kleene's three values): what other calls rule out does not depend
on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime

from runnel.algebra.nodes.attributes import Ago, Attribute, Constant
from runnel.algebra.nodes.calls import (
    Arithmetic,
    Call,
    Constraint,
    Given,
    Literally,
    Quantity,
    Variable,
    variables_of,
)
from runnel.algebra.nodes.expressions import And, Expression, Not, Or
from runnel.algebra.nodes.item_patterns import ItemPattern, PatternSearch, Solution, pattern_values
from runnel.algebra.nodes.terms import Term
from runnel.algebra.semantics.close_conditions import alternatives, close_condition, gather
from runnel.algebra.semantics.evaluate import Holding, compare, holds
from runnel.model.bindings import Binding
from runnel.model.item import Attributes, Value
from runnel.model.operator import Rows, ValueType

Answers = Callable[[Call], Rows | None]
"""What operators say of the item: the rows of a call, or None where it failed."""

PatternRows = Callable[[ItemPattern], list[dict[str, Value]] | None]
"""The bindings of a pattern on the item; None where there are too many."""

Truth3 = bool | None
"""True, false, or unknown."""


def fitting(call: Call, rows: Rows) -> list[dict[str, Value]]:
    """The bindings under which rows fit a call's results: constants are equal, repeated variables too.

    >>> distance = Call("distance", (Literally("Liberty"), Variable("x")), 1, (1,))
    >>> fitting(distance, ((120.0,), (90.0,)))
    [{'x': 120.0}, {'x': 90.0}]
    """
    found: list[dict[str, Value]] = []
    for row in rows:
        binding: dict[str, Value] = {}
        for argument, value in zip(call.pattern, row, strict=True):
            match argument:
                case Variable(name) if name in binding:
                    fits = same(binding[name], value)
                case Variable(name):
                    binding[name] = value
                    fits = True
                case Literally(constant):
                    fits = compare(value, "=", constant)
                case Attribute() | Given():
                    fits = False
            if not fits:
                break
        else:
            found.append(binding)
    return distinct(found)


def joined(left: Sequence[Binding], right: Sequence[Binding]) -> list[dict[str, Value]]:
    """The natural join: all pairs that agree on the variables they share.

    >>> joined([{"x": 1.0}], [{"x": 1.0, "y": 2.0}, {"x": 3.0, "y": 4.0}])
    [{'x': 1.0, 'y': 2.0}]
    """
    if not left or not right:
        return []
    shared = sorted(left[0].keys() & right[0].keys())
    by_key: dict[tuple[tuple[bool, Value], ...], list[Binding]] = {}
    for other in right:
        by_key.setdefault(_key(other, shared), []).append(other)
    return [{**one, **other} for one in left for other in by_key.get(_key(one, shared), ())]


def _key(binding: Binding, names: Sequence[str]) -> tuple[tuple[bool, Value], ...]:
    """What two bindings must have in common; 1 and true are two."""
    return tuple((isinstance(binding[name], bool), binding[name]) for name in names)


def same(left: Value, right: Value) -> bool:
    """Whether two values are one: of the same type, and equal."""
    return isinstance(left, bool) == isinstance(right, bool) and left == right


def distinct(bindings: Iterable[Binding]) -> list[dict[str, Value]]:
    """The bindings without repetition, in order."""
    found: dict[tuple[tuple[str, str, Value], ...], dict[str, Value]] = {}
    for one in bindings:
        found.setdefault(tuple((name, type(value).__name__, value) for name, value in sorted(one.items())), dict(one))
    return list(found.values())


def satisfied(constraint: Constraint, binding: Binding, accepted: datetime | None = None) -> bool:
    """Whether a constraint holds under a binding of its variables.

    >>> twice = Arithmetic("*", Literally(2.0), Variable("z"))
    >>> satisfied(Constraint(Variable("y"), ">", twice), {"y": 7.0, "z": 3.0})
    True
    """
    left, right = evaluate_quantity(constraint.left, binding), evaluate_quantity(constraint.right, binding)
    if left is None or right is None:
        return False
    if constraint.relation == "!=":
        return not _stands(left, "=", right, accepted)
    return _stands(left, constraint.relation, right, accepted)


def _stands(left: Constant, relation: str, right: Constant, accepted: datetime | None) -> bool:
    if isinstance(left, datetime) or not isinstance(left, date | Ago):
        return compare(left, relation, right, accepted)  # type: ignore[arg-type]
    # A whole day or a relative time stands on the right of a comparison alone.
    turned = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}[relation]
    if isinstance(right, date | Ago) and not isinstance(right, datetime):
        return False
    return compare(right, turned, left, accepted)  # type: ignore[arg-type]


def evaluate_quantity(one: Quantity, binding: Binding) -> Constant | None:
    """The value of a quantity, or None where it has none."""
    match one:
        case Literally(value):
            return value
        case Variable(name):
            return binding.get(name)
        case Arithmetic(sign, left, right):
            first, second = evaluate_quantity(left, binding), evaluate_quantity(right, binding)
            if not _is_number(first) or not _is_number(second):
                return None
            return _computed(sign, float(first), float(second))  # type: ignore[arg-type]


def _is_number(value: Constant | None) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _computed(sign: str, first: float, second: float) -> float | None:
    match sign:
        case "+":
            return first + second
        case "-":
            return first - second
        case "*":
            return first * second
        case _:
            return first / second if second else None


MOST_PAIRS = 200_000
"""Combinations of rows that are looked at for one term and item; beyond, it stays unknown."""


MOST_INPUTS = 64
"""Different values that an operator is asked with for one call and item; beyond, the term stays unknown."""


def no_rows(pattern: ItemPattern) -> list[dict[str, Value]]:
    """The bindings of any pattern on an item without values for it."""
    return []


class Definition:
    """Decides patterns on one item by their definition, which gives up early where there is much to try."""

    def __init__(self, attributes: Attributes) -> None:
        self._attributes = attributes

    def holds(self, pattern: ItemPattern) -> Truth3:
        """Whether a pattern holds."""
        return holds(pattern, self._attributes)

    def solutions(self, pattern: ItemPattern) -> Iterator[Solution]:
        """The solutions of a pattern."""
        return (found for value in pattern_values(pattern, self._attributes) for found in pattern.solutions(value))

    def rows(self, pattern: ItemPattern) -> list[dict[str, Value]] | None:
        """The distinct bindings of a pattern."""
        return distinct(map(pattern.binding, self.solutions(pattern)))


def grounded(call: Call, rows: Iterable[Binding]) -> dict[tuple[tuple[str, Value], ...], Call]:
    """The calls that rows of item patterns make of one that is given their variables, by these and their values.

    A row with a value of another type than the operator takes makes none, nor one without a value.

    >>> near = Call("near", (Given("where", "text"), Variable("x")), 1, (1,))
    >>> [one.arguments[0] for one in grounded(near, [{"where": "Bronx"}, {"where": 3.0}, {"x": 1.0}]).values()]
    [Literally(value='Bronx')]
    """
    found: dict[tuple[tuple[str, Value], ...], Call] = {}
    known = (row for row in rows if all(one.name in row for one in call.given))
    for row in distinct({one.name: row[one.name] for one in call.given} for row in known):
        if all(is_of_type(row[one.name], one.type) for one in call.given):
            arguments = tuple(Literally(row[one.name]) if isinstance(one, Given) else one for one in call.arguments)
            found[tuple(row.items())] = Call(call.operator, arguments, call.version, call.results)
    return found


def is_of_type(value: Value, kind: ValueType) -> bool:
    """Whether a value is what an operator takes."""
    match kind:
        case "boolean":
            return isinstance(value, bool)
        case "text":
            return isinstance(value, str)
        case "date":
            return isinstance(value, datetime)
        case "number":
            return _is_number(value)
        case "int":
            return isinstance(value, int | float) and _is_number(value) and value == int(value)


def term_solutions(
    term: Term, answers: Answers, accepted: datetime | None = None, rows_of: PatternRows = no_rows
) -> list[dict[str, Value]] | None:
    """The bindings that satisfy a term; None where it may have some and an operator failed, or there is too much to
    join.

    An operator that failed, for all or for some solutions of a pattern, may have had any rows. So a term without
    bindings is unknown if such rows could give it one, and false if the other calls rule that out.

    >>> both = Term((Call("p", (Variable("x"),), 1, (0,)), Call("q", (Variable("x"),), 1, (0,))))
    >>> term_solutions(both, lambda call: None if call.operator == "p" else ())
    []
    >>> term_solutions(both, lambda call: None if call.operator == "p" else ((1.0,),)) is None
    True
    """
    rows = pattern_rows(term.patterns, rows_of)
    if not rows:
        return rows
    relations = [_relation(call, rows, answers) for call in term.calls]
    joins = [_Join(rows, frozenset(rows[0]), term.constraints)]
    pairs = 0
    for relation in relations:
        pairs += sum(len(one.found) * (len(relation.rows) + len(relation.failed)) for one in joins)
        if pairs > MOST_PAIRS:
            return None
        joins = [other for one in joins for other in one.joined(relation, accepted) if other.found]
    sure = [one.found for one in joins if one.is_certain]
    return sure[0] if sure else None if joins else []


def pattern_rows(patterns: Sequence[ItemPattern], rows_of: PatternRows) -> list[dict[str, Value]] | None:
    """The bindings that satisfy all patterns; None where there are too many."""
    found: list[dict[str, Value]] = [{}]
    for pattern in patterns:
        rows = rows_of(pattern)
        if rows is None or len(found) * len(rows) > MOST_PAIRS:
            return None
        found = joined(found, rows)
    return found


@dataclass(frozen=True, slots=True)
class _Relation:
    """The answers of a call for rows of patterns: rows with its arguments, and arguments for which it failed."""

    rows: list[dict[str, Value]]
    variables: frozenset[str]
    failed: Sequence[Binding] = ()
    given: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class _Join:
    """Bindings of the calls so far, and the constraints that wait for their variables; uncertain ones stand for what
    a call that failed may have said.
    """

    found: list[dict[str, Value]]
    bound: frozenset[str]
    waiting: tuple[Constraint, ...]
    is_certain: bool = True

    def joined(self, relation: _Relation, accepted: datetime | None) -> Iterator[_Join]:
        """The bindings with those of one more call."""
        if relation.rows:
            yield self._with(relation.rows, relation.variables, self.is_certain, accepted)
        if relation.failed:
            yield self._with(relation.failed, relation.given, False, accepted)

    def _with(
        self, rows: Sequence[Binding], names: frozenset[str], is_certain: bool, accepted: datetime | None
    ) -> _Join:
        bound = self.bound | names
        # A constraint is checked as soon as its variables are bound, so that fewer bindings are joined.
        ready = [one for one in self.waiting if {variable.name for variable in variables_of(one)} <= bound]
        waiting = tuple(one for one in self.waiting if one not in ready)
        found = [
            one
            for one in joined(self.found, rows)
            if all(satisfied(constraint, one, accepted) for constraint in ready)
        ]
        return _Join(found, bound, waiting, is_certain)


def _relation(call: Call, rows: Sequence[Binding], answers: Answers) -> _Relation:
    """The answers of a call for rows of patterns."""
    given = frozenset(one.name for one in call.given)
    names = given | {variable.name for variable in variables_of(call)}
    if not call.given:
        said = answers(call)
        return _Relation([], names, [{}]) if said is None else _Relation(fitting(call, said), names)
    asked = grounded(call, rows)
    if len(asked) > MOST_INPUTS:
        return _Relation([], names, [{}])
    found: list[dict[str, Value]] = []
    failed: list[dict[str, Value]] = []
    for values, one in asked.items():
        said = answers(one)
        if said is None:
            failed.append(dict(values))
        # What is a result under the name of an input must be what was given.
        found += joined([dict(values)], fitting(one, said or ()))
    return _Relation(found, names, failed, given)


def truth(
    expression: Expression,
    attributes: Attributes,
    answers: Answers,
    accepted: datetime | None = None,
    search: PatternSearch | None = None,
) -> Truth3:
    """Whether a closed condition (see `close_condition`) holds, in three values. `search` decides item patterns.

    >>> mob = Term((Call("mob", (), 1),))
    >>> truth(mob, {}, lambda call: ((),)), truth(mob, {}, lambda call: ()), truth(mob, {}, lambda call: None)
    (True, False, None)
    """
    match expression:
        case And(parts):
            values = [truth(part, attributes, answers, accepted, search) for part in parts]
            return False if False in values else None if None in values else True
        case Or(parts):
            values = [truth(part, attributes, answers, accepted, search) for part in parts]
            return True if True in values else None if None in values else False
        case Not(part):
            value = truth(part, attributes, answers, accepted, search)
            return None if value is None else not value
        case Term():
            found = term_solutions(expression, answers, accepted, (search or Definition(attributes)).rows)
            return None if found is None else bool(found)
        case ItemPattern():
            return (search or Definition(attributes)).holds(expression)
        case _:
            return holds(expression, attributes, accepted)


def asking(answers: Answers, search: PatternSearch | None = None) -> Holding:
    """How a condition is decided, as written, by one who knows what operators say: what is unknown does not hold."""

    def holding(expression: Expression, attributes: Attributes, accepted: datetime | None) -> bool:
        return bool(truth(close_condition(expression), attributes, answers, accepted, search))

    return holding


def solutions(
    expression: Expression,
    attributes: Attributes,
    answers: Answers,
    accepted: datetime | None = None,
    rows_of: PatternRows | None = None,
) -> list[dict[str, Value]]:
    """The bindings that satisfy a condition as it was written; none where it does not hold or that is unknown.

    What holds without variables has the empty binding, which is left out where there are others.

    >>> mob = And((Call("mob", (Variable("n"),), 1, (0,)), Constraint(Variable("n"), ">", Literally(50.0))))
    >>> solutions(mob, {}, lambda call: ((40.0,), (60.0,)))
    [{'n': 60.0}]
    """
    found: list[dict[str, Value]] = []
    for one in alternatives(expression):
        if all(truth(close_condition(part), attributes, answers, accepted) for part in one.others):
            found += term_solutions(gather(one), answers, accepted, rows_of or Definition(attributes).rows) or []
    several = distinct(found)
    return [one for one in several if one] or several
