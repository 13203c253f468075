"""A reference evaluator for drafts after any pass: the IDs of the queries that an item matches, without indexes."""

from __future__ import annotations

import json

from runnel.algebra.nodes.encode import decode_expression
from runnel.algebra.nodes.expressions import Expression
from runnel.algebra.nodes.query import Read
from runnel.algebra.semantics.evaluate import accepts, holds
from runnel.model.item import Attributes
from runnel.optimizer.draft import Draft, FlatFilter, FlatRead, FlatUnion
from runnel.plan.logical_plan import EXACT, FormulaKind, LogicalPlan


def evaluate_draft(draft: Draft, feed: int, attributes: Attributes) -> set[int]:
    """Return the queries that an item of a source feed matches, by the latest form in the draft."""
    if draft.logical is not None:
        return evaluate_logical(draft.logical, feed, attributes)
    if draft.branches is not None:
        return _evaluate_branches(draft, feed, attributes)
    if draft.roots is not None:
        return _evaluate_nodes(draft, feed, attributes)
    return {query.id for query in draft.queries if accepts(Read(query.id), feed, attributes, draft.definitions)}


def _literal(atom: Expression, literal: int, attributes: Attributes) -> bool:
    return holds(atom, attributes) != bool(literal & 1)


def _formula(draft: Draft, formula: int, attributes: Attributes) -> bool:
    truths: dict[int, bool] = {}
    for value in draft.formulas.reachable([formula]):
        children = draft.formulas.children[value]
        match draft.formulas.kinds[value]:
            case FormulaKind.CONSTANT:
                truths[value] = bool(children[0])
            case FormulaKind.LITERAL:
                truths[value] = _literal(draft.formulas.atoms[children[0] >> 1], children[0], attributes)
            case FormulaKind.NOT:
                truths[value] = not truths[children[0]]
            case FormulaKind.AND:
                truths[value] = all(truths[child] for child in children)
            case _:
                truths[value] = any(truths[child] for child in children)
    return truths[formula]


def _evaluate_nodes(draft: Draft, feed: int, attributes: Attributes) -> set[int]:
    roots = draft.roots or ()
    truths: dict[int, bool] = {}
    for number in draft.nodes.reachable(roots):
        match draft.nodes.nodes[number]:
            case FlatRead(source):
                truths[number] = source == feed
            case FlatUnion(inputs):
                truths[number] = any(truths[value] for value in inputs)
            case FlatFilter(inner, formula):
                truths[number] = truths[inner] and _formula(draft, formula, attributes)
    return {query.id for query, root in zip(draft.queries, roots, strict=True) if truths[root]}


def _evaluate_branches(draft: Draft, feed: int, attributes: Attributes) -> set[int]:
    results = set()
    for branch in draft.branches or ():
        truth = feed in branch.sources
        form = None if draft.normal_forms is None else draft.normal_forms[branch.formula]
        if form is not None:
            atoms = draft.formulas.atoms
            truth = truth and all(
                any(_literal(atoms[literal >> 1], literal, attributes) for literal in clause)
                for clause in form.clauses
            )
        if form is None or not form.exact:
            truth = truth and _formula(draft, branch.formula, attributes)
        if truth:
            results.add(draft.queries[branch.query].id)
    return results


def evaluate_logical(logical: LogicalPlan, feed: int, attributes: Attributes) -> set[int]:
    """Return the queries and disjuncts of a logical plan that an item matches."""
    atoms = [decode_expression(json.loads(logical.atoms.text(number))) for number in range(len(logical.atoms))]
    clauses = [
        any(_literal(atoms[value >> 1], value, attributes) for value in row) for row in logical.clauses.lists()
    ]
    formulas: list[bool] = []
    for kind, children in zip(logical.formula_kinds.tolist(), logical.formulas.lists(), strict=True):
        match kind:
            case FormulaKind.CONSTANT:
                formulas.append(bool(children[0]))
            case FormulaKind.LITERAL:
                formulas.append(_literal(atoms[children[0] >> 1], children[0], attributes))
            case FormulaKind.AND:
                formulas.append(all(formulas[child] for child in children))
            case _:
                formulas.append(any(formulas[child] for child in children))
    results = set()
    for target, members in enumerate(logical.targets.lists()):
        predicate = int(logical.target_predicates[target])
        formula = int(logical.predicate_formulas[predicate])
        truth = all(clauses[value] for value in logical.predicates.row(predicate).tolist())
        truth = truth and (formula == EXACT or formulas[formula])
        if truth and feed in logical.scopes.row(int(logical.target_scopes[target])).tolist():
            results |= {int(logical.query_ids[member]) for member in members}
    return results
