"""Formulas, clauses and drafts as text in the language of conditions, for `explain --steps` and for golden files.

A formula is a shared graph and its text a tree, so every text has a limit: beyond it the rest is counted, not
shown.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType

from runnel.algebra.nodes.encode import decode_expression
from runnel.algebra.nodes.expressions import FALSE, TRUE, And, Expression, Not, Or, Truth
from runnel.algebra.nodes.render import render, render_name
from runnel.algebra.nodes.terms import Term
from runnel.algebra.semantics.close_conditions import rename_term
from runnel.optimizer.draft import Branch, Draft, FlatFilter, FlatRead, FlatUnion, NormalForm
from runnel.optimizer.formulas import COMPOUND, Formulas
from runnel.plan.gates import disjunct_position
from runnel.plan.logical_plan import FormulaKind, LogicalPlan
from runnel.plan.operator_table import OperatorTable

LIMIT = 100
"""How many conditions a text shows at most."""

WIDTH = 78
"""How wide a line of an explanation is, where its words allow it: the commands put two blanks before it."""

Children = Mapping[int, tuple[int, ...]]


def shortened(names: Sequence[str], most: int = 20) -> str:
    """Names in a row, the first of them if they are many.

    >>> shortened(["A", "B", "C", "D"], most=2)
    'A, B and 2 more'
    """
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more:,} more" if more > 0 else "")


def counted(number: int, thing: str) -> str:
    """A number of things.

    >>> counted(1, "query"), counted(2, "query"), counted(1200, "more source")
    ('1 query', '2 queries', '1,200 more sources')
    """
    several = f"{thing[:-1]}ies" if thing.endswith("y") else f"{thing}s"
    return f"{number:,} {thing if number == 1 else several}"


def wrapped(lines: Iterable[str]) -> list[str]:
    """The same lines, none wider than a screen; what is cut off stands below, further in.

    >>> wrapped(["  on One:", "  " + " ".join(["rock"] * 20)])[1:]
    ['  rock rock rock rock rock rock rock rock rock rock rock rock rock rock rock', '      rock rock rock rock rock']
    """
    shown: list[str] = []
    for line in lines:
        indent = " " * (len(line) - len(line.lstrip()))
        pieces = textwrap.wrap(
            line.strip(),
            WIDTH,
            initial_indent=indent,
            subsequent_indent=f"{indent}    ",
            break_long_words=False,
            break_on_hyphens=False,
        )
        shown += pieces or [line]
    return shown


def describe_draft(draft: Draft, feeds: Mapping[int, str] = MappingProxyType({})) -> list[str]:
    """The draft as it stands after its last pass, a line for every query and its sources; `feeds` gives names."""
    if draft.logical is not None:
        return describe_plan(draft.logical, feeds)
    if draft.branches is not None:
        branches = [_describe_branch(draft, branch, feeds) for branch in draft.branches]
        return branches + describe_disjuncts(draft.operators, feeds)
    if draft.roots is not None:
        pairs = zip(draft.queries, draft.roots, strict=True)
        return [f"{_name(query.id, feeds)}: {_describe_node(draft, root, LIMIT, feeds)}" for query, root in pairs]
    return [_name(query.id, feeds) for query in draft.queries]


def describe_disjuncts(table: OperatorTable, feeds: Mapping[int, str]) -> list[str]:
    """The ways that operators decide, a line for each."""
    return [
        f"{_name(way, feeds)} decides {_name(target, feeds)}: {describe_disjunct(table, place)}"
        for place, (way, target) in enumerate(
            zip(table.disjunct_ids.tolist(), table.disjunct_targets.tolist(), strict=True)
        )
    ]


def describe_plan(logical: LogicalPlan, feeds: Mapping[int, str]) -> list[str]:
    """The predicate table: each predicate once, with the queries and sources that refer to it."""
    lines = []
    for target, members in enumerate(logical.targets.lists()):
        predicate = int(logical.target_predicates[target])
        sources = _names(logical.scopes.row(int(logical.target_scopes[target])).tolist(), feeds)
        queries = _names([int(logical.query_ids[member]) for member in members], feeds)
        mark = "" if logical.predicate_formulas[predicate] < 0 else " (then checked in full)"
        lines.append(f"{queries} on {sources}: {render(stored_predicate(logical, predicate))}{mark}")
    return lines


def describe_formula(formulas: Formulas, formula: int) -> str:
    """The text of a formula, or its size where the text would be long."""
    order = formulas.reachable([formula])
    kinds = {one: formulas.kinds[one] for one in order}
    children = {one: formulas.children[one] for one in order}
    return _describe(formula, order, kinds, children, formulas.atoms.__getitem__, formulas.terms)


def describe_stored_formula(logical: LogicalPlan, formula: int) -> str:
    """The text of a formula of a stored plan, or its size where the text would be long."""
    kinds: dict[int, int] = {}
    children: dict[int, tuple[int, ...]] = {}
    stack = [formula]
    while stack:
        one = stack.pop()
        if one not in kinds:
            kinds[one] = int(logical.formula_kinds[one])
            children[one] = tuple(logical.formulas.row(one).tolist())
            if kinds[one] in COMPOUND:
                stack.extend(children[one])
    return _describe(formula, sorted(kinds), kinds, children, lambda atom: stored_atom(logical, atom))


def describe_disjunct(table: OperatorTable, way: int) -> str:
    """What operators must say on a way, by its place, as written; variables of views have numbers for names."""
    row = table.literals.row(way).tolist()
    found: list[str] = []
    for literal, several in zip(row, table.names_of(way, len(row)), strict=True):
        term = decode_expression(json.loads(table.terms.text(literal >> 1)))
        for names in several or ((),):
            text = render(rename_term(term, names) if isinstance(term, Term) else term)
            found.append(f"not ({text})" if literal & 1 else text)
    return " and ".join(found)


def stored_atom(logical: LogicalPlan, atom: int) -> Expression:
    """An atom of a stored plan."""
    return decode_expression(json.loads(logical.atoms.text(atom)))


def stored_clause(logical: LogicalPlan, clause: int) -> Expression:
    """A clause of a stored plan, as an expression."""
    literals = logical.clauses.row(clause).tolist()
    return clause_expression(_signed(stored_atom(logical, literal >> 1), literal) for literal in literals)


def stored_predicate(logical: LogicalPlan, predicate: int) -> Expression:
    """The clauses of a predicate of a stored plan, as an expression."""
    return _conjunction(stored_clause(logical, clause) for clause in logical.predicates.row(predicate).tolist())


def normal_expression(formulas: Formulas, form: NormalForm) -> Expression:
    """A normal form as an expression."""
    return _conjunction(
        clause_expression(_signed(formulas.atoms[literal >> 1], literal) for literal in clause)
        for clause in form.clauses
    )


def clause_expression(literals: Iterable[Expression]) -> Expression:
    """A disjunction of literals as an expression."""
    parts = tuple(literals)
    return parts[0] if len(parts) == 1 else Or(parts) if parts else FALSE


def _conjunction(clauses: Iterable[Expression]) -> Expression:
    parts = tuple(clauses)
    return parts[0] if len(parts) == 1 else And(parts) if parts else TRUE


def _signed(atom: Expression, literal: int) -> Expression:
    return Not(atom) if literal & 1 else atom


def _name(one: int, feeds: Mapping[int, str]) -> str:
    """A query by its name, or its id; a disjunct by that of its query, with a mark."""
    query, place = disjunct_position(one)
    name = render_name(feeds[query]) if query in feeds else str(query)
    return name if place is None else f"{name}/{place}"


def _names(ids: Sequence[int], feeds: Mapping[int, str]) -> str:
    shown = ", ".join(_name(one, feeds) for one in ids[:LIMIT])
    return shown if len(ids) <= LIMIT else f"{shown} and {len(ids) - LIMIT} more"


def _describe_branch(draft: Draft, branch: Branch, feeds: Mapping[int, str]) -> str:
    where = f"{_name(draft.queries[branch.query].id, feeds)} on {_names(branch.sources, feeds)}"
    if draft.normal_forms is None:
        return f"{where}: {describe_formula(draft.formulas, branch.formula)}"
    form = draft.normal_forms[branch.formula]
    mark = "" if form.exact else " (then checked in full)"
    return f"{where}: {render(normal_expression(draft.formulas, form))}{mark}"


def _describe_node(draft: Draft, number: int, room: int, feeds: Mapping[int, str]) -> str:
    """The text of a flat node; views inside views are cut where they nest deeper than the room."""
    if room <= 0:
        return "…"
    match draft.nodes.nodes[number]:
        case FlatRead(source):
            return _name(source, feeds)
        case FlatUnion(inputs):
            share = room // max(1, len(inputs))
            return f"({' | '.join(_describe_node(draft, one, share, feeds) for one in inputs)})"
        case FlatFilter(inner, formula):
            return f"{_describe_node(draft, inner, room - 1, feeds)}[{describe_formula(draft.formulas, formula)}]"


def _describe(
    formula: int,
    order: list[int],
    kinds: Mapping[int, int],
    children: Children,
    atom: Callable[[int], Expression],
    terms: Sequence[str] = (),
) -> str:
    sizes: dict[int, int] = {}
    for one in order:
        below = children[one] if kinds[one] in COMPOUND else ()
        sizes[one] = 1 + sum(sizes[child] for child in below)
    if sizes[formula] > LIMIT:
        return f"… ({len(order)} shared conditions)"
    built: dict[int, Expression] = {}
    for one in order:
        match kinds[one]:
            case FormulaKind.CONSTANT:
                built[one] = Truth(bool(children[one][0]))
            case FormulaKind.LITERAL:
                built[one] = _signed(atom(children[one][0] >> 1), children[one][0])
            case FormulaKind.TERM:
                built[one] = decode_expression(json.loads(terms[children[one][0]]))
            case FormulaKind.NOT:
                built[one] = Not(built[children[one][0]])
            case FormulaKind.AND:
                built[one] = And(tuple(built[child] for child in children[one]))
            case _:
                built[one] = Or(tuple(built[child] for child in children[one]))
    return render(built[formula])
