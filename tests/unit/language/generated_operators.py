"""Hypothesis strategies for calls, constraints and registrations of operators, as the parser builds them."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import strategies as st

from runnel.algebra.nodes.attributes import Ago, Attribute, Constant
from runnel.algebra.nodes.calls import (
    RELATIONS,
    Arithmetic,
    Call,
    Constraint,
    Literally,
    Quantity,
    Relation,
    Variable,
    variables_of,
)
from runnel.language.syntax.conditions import arithmetic_depth
from runnel.language.syntax.operator_terms import MAX_ARITHMETIC_DEPTH
from runnel.language.syntax.statements import Name, RegisterOperator
from runnel.model.operator import VALUE_TYPES, Parameter

bare = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)
bindings = bare.map(Variable)


def operator_calls(
    names: st.SearchStrategy[str], attributes: st.SearchStrategy[str], constants: st.SearchStrategy[Constant]
) -> st.SearchStrategy[Call]:
    """Generate calls of operators with any name and any kinds of arguments."""
    arguments = bindings | attributes.map(Attribute) | constants.map(Literally)
    return st.builds(Call, names, st.lists(arguments, max_size=4).map(tuple))


def quantities(numbers: st.SearchStrategy[float]) -> st.SearchStrategy[Quantity]:
    """Generate variables, numbers and calculations with them, nested on either side."""
    leaves: st.SearchStrategy[Quantity] = bindings | numbers.map(Literally)
    return st.recursive(
        leaves, lambda inner: st.builds(Arithmetic, st.sampled_from(["+", "-", "*", "/"]), inner, inner), max_leaves=8
    ).filter(lambda value: arithmetic_depth(value) <= MAX_ARITHMETIC_DEPTH)


def constraints(
    numbers: st.SearchStrategy[float], others: st.SearchStrategy[Constant], ages: st.SearchStrategy[Ago]
) -> st.SearchStrategy[Constraint]:
    """Generate comparisons with a variable on the left."""
    left = quantities(numbers).filter(lambda value: next(variables_of(value), None) is not None)
    relations: st.SearchStrategy[Relation] = st.sampled_from(RELATIONS)
    ordered = relations.filter(lambda sign: sign not in ("=", "!="))
    return st.builds(Constraint, left, relations, quantities(numbers) | others.map(Literally)) | st.builds(
        Constraint, left, ordered, ages.map(Literally)
    )


def registrations(
    names: st.SearchStrategy[Name],
    texts: st.SearchStrategy[str],
    sources: st.SearchStrategy[str],
    values: st.SearchStrategy[str],
    durations: st.SearchStrategy[timedelta],
) -> st.SearchStrategy[RegisterOperator]:
    """Generate registrations with any options."""
    types = st.sampled_from(VALUE_TYPES)
    parameter = st.one_of(
        st.builds(Parameter, texts, st.just("input"), types),
        st.builds(Parameter, texts, st.just("attribute")),
        st.builds(Parameter, bare, st.just("result"), types),
    )
    parameters = st.lists(parameter, max_size=4, unique_by=lambda entry: entry.name).map(tuple)
    spans = st.builds(
        lambda count, unit: timedelta(microseconds=count * unit),
        st.integers(1, 3_600),
        st.sampled_from([1, 1_000, 1_000_000]),
    )
    policies = st.just((None, None)) | st.just(("unknown", None)) | st.tuples(st.just("retry"), st.none() | durations)
    options = st.fixed_dictionaries(
        {},
        optional={
            "parameters": parameters,
            "release": sources,
            "cost": spans,
            "pure": st.booleans(),
            "reads": st.lists(texts, min_size=1, max_size=3, unique=True).map(tuple),
            "batch": st.integers(1, 100_000),
            "time_limit": spans,
            "concurrency": st.integers(1, 1_000),
            "calls": st.integers(1, 10**12),
            "seconds": st.floats(min_value=0.001, max_value=1e9),
            "configuration": st.dictionaries(texts, values, max_size=3).map(
                lambda entry: tuple(sorted(entry.items()))
            ),
        },
    )

    def build(name: Name, source: str, given: dict[str, object], policy: tuple[object, object]) -> RegisterOperator:
        return RegisterOperator(name, source, **given, on_error=policy[0], retry_for=policy[1])  # type: ignore[arg-type]

    return st.builds(build, names, sources, options, policies)
