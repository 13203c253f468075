"""The reference semantics of variables in conditions: slow, short, and the definition.

The solutions of a condition are the bindings of its variables that satisfy it. An item matches if there is at least
one. Calls and item patterns are joined on the plain values of the variables that they share. `close_condition` has
checked that the same conjunction binds the variables of each constraint. An operator with variables of a pattern as
inputs is called for each solution of the pattern. Variables under `not` are local, so they are not part of a
solution.

Truth has Kleene's three values. If an operator failed, all that depends on its answer is unknown, and an unknown
condition does not match. A condition that other calls make false is false nevertheless.
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
"""Returns the rows that an operator call has for the item, or None if the call failed."""

PatternRows = Callable[[ItemPattern], list[dict[str, Value]] | None]
"""Returns the bindings of a pattern on the item, or None if there are too many."""

Truth3 = bool | None
"""True, false, or unknown."""


def fitting(call: Call, rows: Rows) -> list[dict[str, Value]]:
    """Return the bindings of a call's result variables, for the rows that agree with its constants.

    >>> distance = Call("distance", (Literally("Liberty"), Variable("x")), 1, (1,))
    >>> fitting(distance, ((120.0,), (90.0,)))
    [{'x': 120.0}, {'x': 90.0}]
    """
    bindings: list[dict[str, Value]] = []
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
            bindings.append(binding)
    return distinct(bindings)


def joined(left: Sequence[Binding], right: Sequence[Binding]) -> list[dict[str, Value]]:
    """Return the natural join: the union of each pair of bindings that agree on shared variables.

    >>> joined([{"x": 1.0}], [{"x": 1.0, "y": 2.0}, {"x": 3.0, "y": 4.0}])
    [{'x': 1.0, 'y': 2.0}]
    """
    if not left or not right:
        return []
    shared = sorted(left[0].keys() & right[0].keys())
    by_key: dict[tuple[tuple[bool, Value], ...], list[Binding]] = {}
    for other in right:
        by_key.setdefault(_key(other, shared), []).append(other)
    return [{**binding, **other} for binding in left for other in by_key.get(_key(binding, shared), ())]


def _key(binding: Binding, names: Sequence[str]) -> tuple[tuple[bool, Value], ...]:
    """Return the values that two bindings must have in common. 1 and true are different."""
    return tuple((isinstance(binding[name], bool), binding[name]) for name in names)


def same(left: Value, right: Value) -> bool:
    """Return whether two values are equal, and both or neither are booleans."""
    return isinstance(left, bool) == isinstance(right, bool) and left == right


def distinct(bindings: Iterable[Binding]) -> list[dict[str, Value]]:
    """Return the bindings without repetitions, in order."""
    unique: dict[tuple[tuple[str, str, Value], ...], dict[str, Value]] = {}
    for binding in bindings:
        key = tuple((name, type(value).__name__, value) for name, value in sorted(binding.items()))
        unique.setdefault(key, dict(binding))
    return list(unique.values())


def satisfied(constraint: Constraint, binding: Binding, accepted: datetime | None = None) -> bool:
    """Return whether a constraint holds under a binding of its variables.

    >>> twice = Arithmetic("*", Literally(2.0), Variable("z"))
    >>> satisfied(Constraint(Variable("y"), ">", twice), {"y": 7.0, "z": 3.0})
    True
    """
    left, right = evaluate_quantity(constraint.left, binding), evaluate_quantity(constraint.right, binding)
    if left is None or right is None:
        return False
    if constraint.relation == "!=":
        return not _compare_constants(left, "=", right, accepted)
    return _compare_constants(left, constraint.relation, right, accepted)


def _compare_constants(left: Constant, relation: str, right: Constant, accepted: datetime | None) -> bool:
    if isinstance(left, datetime) or not isinstance(left, date | Ago):
        return compare(left, relation, right, accepted)  # type: ignore[arg-type]
    # `compare` takes whole days and relative times only on the right side, so the comparison is mirrored.
    mirrored = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}[relation]
    if isinstance(right, date | Ago) and not isinstance(right, datetime):
        return False
    return compare(right, mirrored, left, accepted)  # type: ignore[arg-type]


def evaluate_quantity(quantity: Quantity, binding: Binding) -> Constant | None:
    """Return the value of a quantity, or None if it has none."""
    match quantity:
        case Literally(value):
            return value
        case Variable(name):
            return binding.get(name)
        case Arithmetic(sign, left, right):
            first, second = evaluate_quantity(left, binding), evaluate_quantity(right, binding)
            if not _is_number(first) or not _is_number(second):
                return None
            return _compute(sign, float(first), float(second))  # type: ignore[arg-type]


def _is_number(value: Constant | None) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _compute(sign: str, first: float, second: float) -> float | None:
    match sign:
        case "+":
            return first + second
        case "-":
            return first - second
        case "*":
            return first * second
        case _:
            return first / second if second else None


MAX_PAIRS = 200_000
"""How many combinations of rows are joined per term and item. Beyond that, the term is unknown."""


MAX_INPUTS = 64
"""How many different inputs one call can have per item. Beyond that, the term is unknown."""


def no_rows(pattern: ItemPattern) -> list[dict[str, Value]]:
    """Return no bindings, whatever the pattern, for an item without structured values."""
    return []


class ReferencePatternSearch:
    """The reference `PatternSearch`: evaluates patterns on one item by their definition, within low limits."""

    def __init__(self, attributes: Attributes) -> None:
        self._attributes = attributes

    def holds(self, pattern: ItemPattern) -> Truth3:
        """Return whether a pattern holds."""
        return holds(pattern, self._attributes)

    def solutions(self, pattern: ItemPattern) -> Iterator[Solution]:
        """Yield the solutions of a pattern."""
        values = pattern_values(pattern, self._attributes)
        return (solution for value in values for solution in pattern.solutions(value))

    def rows(self, pattern: ItemPattern) -> list[dict[str, Value]] | None:
        """Return the distinct bindings of a pattern."""
        return distinct(map(pattern.binding, self.solutions(pattern)))


def grounded(call: Call, rows: Iterable[Binding]) -> dict[tuple[tuple[str, Value], ...], Call]:
    """Replace the input variables of a call by their values in the rows of item patterns.

    Return one call per different set of values, by these values. Rows are skipped if a value is missing or not of the
    declared type.

    >>> near = Call("near", (Given("where", "text"), Variable("x")), 1, (1,))
    >>> [call.arguments[0] for call in grounded(near, [{"where": "Bronx"}, {"where": 3.0}, {"x": 1.0}]).values()]
    [Literally(value='Bronx')]
    """
    calls: dict[tuple[tuple[str, Value], ...], Call] = {}
    complete = (row for row in rows if all(given.name in row for given in call.given))
    for row in distinct({given.name: row[given.name] for given in call.given} for row in complete):
        if all(is_of_type(row[given.name], given.type) for given in call.given):
            arguments = tuple(
                Literally(row[argument.name]) if isinstance(argument, Given) else argument
                for argument in call.arguments
            )
            calls[tuple(row.items())] = Call(call.operator, arguments, call.version, call.results)
    return calls


def is_of_type(value: Value, kind: ValueType) -> bool:
    """Return whether a value is of the declared type of an operator's input."""
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
    """Return the bindings that satisfy a term, or None if the term is unknown.

    A call that failed could have had any rows. So a term without bindings is unknown if such rows could give it one,
    and false (an empty list) if the other calls rule that out. A term is also unknown if there are too many rows to
    join.

    >>> both = Term((Call("p", (Variable("x"),), 1, (0,)), Call("q", (Variable("x"),), 1, (0,))))
    >>> term_solutions(both, lambda call: None if call.operator == "p" else ())
    []
    >>> term_solutions(both, lambda call: None if call.operator == "p" else ((1.0,),)) is None
    True
    """
    rows = pattern_rows(term.patterns, rows_of)
    if not rows:
        return rows
    relations = [_call_relation(call, rows, answers) for call in term.calls]
    joins = [_Join(rows, frozenset(rows[0]), term.constraints)]
    pairs = 0
    for relation in relations:
        pairs += sum(len(join.rows) * (len(relation.rows) + len(relation.failed)) for join in joins)
        if pairs > MAX_PAIRS:
            return None
        joins = [extended for join in joins for extended in join.extend(relation, accepted) if extended.rows]
    certain = [join.rows for join in joins if join.is_certain]
    return certain[0] if certain else None if joins else []


def pattern_rows(patterns: Sequence[ItemPattern], rows_of: PatternRows) -> list[dict[str, Value]] | None:
    """Return the bindings that satisfy all patterns, or None if there are too many."""
    bindings: list[dict[str, Value]] = [{}]
    for pattern in patterns:
        rows = rows_of(pattern)
        if rows is None or len(bindings) * len(rows) > MAX_PAIRS:
            return None
        bindings = joined(bindings, rows)
    return bindings


@dataclass(frozen=True, slots=True)
class _Relation:
    """The answers of a call for all its inputs: `rows` has inputs and results, `failed` inputs without answers."""

    rows: list[dict[str, Value]]
    variables: frozenset[str]
    failed: Sequence[Binding] = ()
    given: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class _Join:
    """The join of the calls so far, and the constraints whose variables are not all bound yet.

    If it is not certain, it assumes that failed calls had matching rows.
    """

    rows: list[dict[str, Value]]
    bound: frozenset[str]
    waiting: tuple[Constraint, ...]
    is_certain: bool = True

    def extend(self, relation: _Relation, accepted: datetime | None) -> Iterator[_Join]:
        """Yield the joins with the answers of one more call: with its rows, and with its failed inputs."""
        if relation.rows:
            yield self._with(relation.rows, relation.variables, self.is_certain, accepted)
        if relation.failed:
            yield self._with(relation.failed, relation.given, False, accepted)

    def _with(
        self, rows: Sequence[Binding], names: frozenset[str], is_certain: bool, accepted: datetime | None
    ) -> _Join:
        bound = self.bound | names
        # Check each constraint as soon as its variables are bound, so that fewer bindings are joined.
        ready = [each for each in self.waiting if {variable.name for variable in variables_of(each)} <= bound]
        waiting = tuple(each for each in self.waiting if each not in ready)
        satisfying = [
            binding
            for binding in joined(self.rows, rows)
            if all(satisfied(constraint, binding, accepted) for constraint in ready)
        ]
        return _Join(satisfying, bound, waiting, is_certain)


def _call_relation(call: Call, rows: Sequence[Binding], answers: Answers) -> _Relation:
    """Return the answers of a call, for each of its inputs if rows of patterns provide these."""
    given = frozenset(variable.name for variable in call.given)
    names = given | {variable.name for variable in variables_of(call)}
    if not call.given:
        answer = answers(call)
        return _Relation([], names, [{}]) if answer is None else _Relation(fitting(call, answer), names)
    calls = grounded(call, rows)
    if len(calls) > MAX_INPUTS:
        return _Relation([], names, [{}])
    bindings: list[dict[str, Value]] = []
    failed: list[dict[str, Value]] = []
    for inputs, grounded_call in calls.items():
        answer = answers(grounded_call)
        if answer is None:
            failed.append(dict(inputs))
        # If a variable is both an input and a result, the result must equal the input.
        bindings += joined([dict(inputs)], fitting(grounded_call, answer or ()))
    return _Relation(bindings, names, failed, given)


def truth(
    expression: Expression,
    attributes: Attributes,
    answers: Answers,
    accepted: datetime | None = None,
    search: PatternSearch | None = None,
) -> Truth3:
    """Return whether a closed condition (see `close_condition`) holds, or None if unknown. `search` evaluates
    patterns.

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
            bindings = term_solutions(
                expression, answers, accepted, (search or ReferencePatternSearch(attributes)).rows
            )
            return None if bindings is None else bool(bindings)
        case ItemPattern():
            return (search or ReferencePatternSearch(attributes)).holds(expression)
        case _:
            return holds(expression, attributes, accepted)


def asking(answers: Answers, search: PatternSearch | None = None) -> Holding:
    """Return a function that evaluates conditions with the answers of operators. Unknown conditions do not hold."""

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
    """Return the bindings that satisfy a condition as written, or an empty list if it is false or unknown.

    A condition that holds without variables has the empty binding, which is omitted if there are others.

    >>> mob = And((Call("mob", (Variable("n"),), 1, (0,)), Constraint(Variable("n"), ">", Literally(50.0))))
    >>> solutions(mob, {}, lambda call: ((40.0,), (60.0,)))
    [{'n': 60.0}]
    """
    rows_of = rows_of or ReferencePatternSearch(attributes).rows
    rows: list[dict[str, Value]] = []
    for alternative in alternatives(expression):
        if all(truth(close_condition(part), attributes, answers, accepted) for part in alternative.others):
            rows += term_solutions(gather(alternative), answers, accepted, rows_of) or []
    bindings = distinct(rows)
    return [binding for binding in bindings if binding] or bindings
