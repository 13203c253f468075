"""The text of formulas, clauses and drafts in the language of conditions, for `explain --steps` and golden files.

Formulas share subformulas, but their texts do not, so a text can be exponentially longer than its formula. If a text
would have more than `LIMIT` conditions, only their number is shown.
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
"""How many conditions a text can show."""

WIDTH = 78
"""The width of an explanation's lines, without the two spaces that commands print before them."""

Children = Mapping[int, tuple[int, ...]]


def shortened(names: Sequence[str], most: int = 20) -> str:
    """Return a list of names as text. Show only the first `most` names, and the number of the others.

    >>> shortened(["A", "B", "C", "D"], most=2)
    'A, B and 2 more'
    """
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more:,} more" if more > 0 else "")


def counted(number: int, thing: str) -> str:
    """Return a number with a noun in the singular or plural.

    >>> counted(1, "query"), counted(2, "query"), counted(1200, "more source")
    ('1 query', '2 queries', '1,200 more sources')
    """
    several = f"{thing[:-1]}ies" if thing.endswith("y") else f"{thing}s"
    return f"{number:,} {thing if number == 1 else several}"


def wrapped(lines: Iterable[str]) -> list[str]:
    """Wrap lines to `WIDTH`. Continuation lines are indented further.

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
    """Return the draft after its last pass as text, one line per query and set of sources. `feeds` has names."""
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
    """Return the disjuncts with operators as text, one line each."""
    pairs = zip(table.disjunct_ids.tolist(), table.disjunct_targets.tolist(), strict=True)
    return [
        f"{_name(disjunct, feeds)} decides {_name(target, feeds)}: {describe_disjunct(table, index)}"
        for index, (disjunct, target) in enumerate(pairs)
    ]


def describe_plan(logical: LogicalPlan, feeds: Mapping[int, str]) -> list[str]:
    """Return the predicate table as text: each predicate once, with the queries and sources that refer to it."""
    lines = []
    for target, members in enumerate(logical.targets.lists()):
        predicate = int(logical.target_predicates[target])
        sources = _names(logical.scopes.row(int(logical.target_scopes[target])).tolist(), feeds)
        queries = _names([int(logical.query_ids[member]) for member in members], feeds)
        mark = "" if logical.predicate_formulas[predicate] < 0 else " (then checked in full)"
        lines.append(f"{queries} on {sources}: {render(stored_predicate(logical, predicate))}{mark}")
    return lines


def describe_formula(formulas: Formulas, formula: int) -> str:
    """Return the text of a formula, or its size if the text would be too long."""
    order = formulas.reachable([formula])
    kinds = {number: formulas.kinds[number] for number in order}
    children = {number: formulas.children[number] for number in order}
    return _describe(formula, order, kinds, children, formulas.atoms.__getitem__, formulas.terms)


def describe_stored_formula(logical: LogicalPlan, formula: int) -> str:
    """Return the text of a formula of a stored plan, or its size if the text would be too long."""
    kinds: dict[int, int] = {}
    children: dict[int, tuple[int, ...]] = {}
    stack = [formula]
    while stack:
        number = stack.pop()
        if number not in kinds:
            kinds[number] = int(logical.formula_kinds[number])
            children[number] = tuple(logical.formulas.row(number).tolist())
            if kinds[number] in COMPOUND:
                stack.extend(children[number])
    return _describe(formula, sorted(kinds), kinds, children, lambda atom: stored_atom(logical, atom))


def describe_disjunct(table: OperatorTable, index: int) -> str:
    """Return the operator conditions of the disjunct at an index. Variables of views are named by numbers."""
    row = table.literals.row(index).tolist()
    conditions: list[str] = []
    for literal, all_names in zip(row, table.names_of(index, len(row)), strict=True):
        term = decode_expression(json.loads(table.terms.text(literal >> 1)))
        for names in all_names or ((),):
            text = render(rename_term(term, names) if isinstance(term, Term) else term)
            conditions.append(f"not ({text})" if literal & 1 else text)
    return " and ".join(conditions)


def stored_atom(logical: LogicalPlan, atom: int) -> Expression:
    """Return an atom of a stored plan."""
    return decode_expression(json.loads(logical.atoms.text(atom)))


def stored_clause(logical: LogicalPlan, clause: int) -> Expression:
    """Return a clause of a stored plan as an expression."""
    literals = logical.clauses.row(clause).tolist()
    return clause_expression(_signed(stored_atom(logical, literal >> 1), literal) for literal in literals)


def stored_predicate(logical: LogicalPlan, predicate: int) -> Expression:
    """Return the clauses of a predicate of a stored plan as an expression."""
    return _conjunction(stored_clause(logical, clause) for clause in logical.predicates.row(predicate).tolist())


def normal_expression(formulas: Formulas, form: NormalForm) -> Expression:
    """Return a normal form as an expression."""
    return _conjunction(
        clause_expression(_signed(formulas.atoms[literal >> 1], literal) for literal in clause)
        for clause in form.clauses
    )


def clause_expression(literals: Iterable[Expression]) -> Expression:
    """Return a disjunction of literals as an expression."""
    parts = tuple(literals)
    return parts[0] if len(parts) == 1 else Or(parts) if parts else FALSE


def _conjunction(clauses: Iterable[Expression]) -> Expression:
    parts = tuple(clauses)
    return parts[0] if len(parts) == 1 else And(parts) if parts else TRUE


def _signed(atom: Expression, literal: int) -> Expression:
    return Not(atom) if literal & 1 else atom


def _name(query_id: int, feeds: Mapping[int, str]) -> str:
    """Return the name of a query, or its ID if unknown. For a disjunct, append `/` and its position."""
    query, position = disjunct_position(query_id)
    name = render_name(feeds[query]) if query in feeds else str(query)
    return name if position is None else f"{name}/{position}"


def _names(ids: Sequence[int], feeds: Mapping[int, str]) -> str:
    shown = ", ".join(_name(query_id, feeds) for query_id in ids[:LIMIT])
    return shown if len(ids) <= LIMIT else f"{shown} and {len(ids) - LIMIT} more"


def _describe_branch(draft: Draft, branch: Branch, feeds: Mapping[int, str]) -> str:
    where = f"{_name(draft.queries[branch.query].id, feeds)} on {_names(branch.sources, feeds)}"
    if draft.normal_forms is None:
        return f"{where}: {describe_formula(draft.formulas, branch.formula)}"
    form = draft.normal_forms[branch.formula]
    mark = "" if form.exact else " (then checked in full)"
    return f"{where}: {render(normal_expression(draft.formulas, form))}{mark}"


def _describe_node(draft: Draft, number: int, room: int, feeds: Mapping[int, str]) -> str:
    """Return the text of a flat node. Deeply nested nodes are omitted; `room` limits the size of the text."""
    if room <= 0:
        return "…"
    match draft.nodes.nodes[number]:
        case FlatRead(source):
            return _name(source, feeds)
        case FlatUnion(inputs):
            share = room // max(1, len(inputs))
            return f"({' | '.join(_describe_node(draft, each, share, feeds) for each in inputs)})"
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
    for number in order:
        subformulas = children[number] if kinds[number] in COMPOUND else ()
        sizes[number] = 1 + sum(sizes[child] for child in subformulas)
    if sizes[formula] > LIMIT:
        return f"… ({len(order)} shared conditions)"
    expressions: dict[int, Expression] = {}
    for number in order:
        first = children[number][0]
        parts = tuple(expressions[child] for child in children[number]) if kinds[number] in COMPOUND else ()
        match kinds[number]:
            case FormulaKind.CONSTANT:
                expressions[number] = Truth(bool(first))
            case FormulaKind.LITERAL:
                expressions[number] = _signed(atom(first >> 1), first)
            case FormulaKind.TERM:
                expressions[number] = decode_expression(json.loads(terms[first]))
            case FormulaKind.NOT:
                expressions[number] = Not(parts[0])
            case FormulaKind.AND:
                expressions[number] = And(parts)
            case _:
                expressions[number] = Or(parts)
    return render(expressions[formula])
