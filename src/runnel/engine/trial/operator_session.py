"""Operators of a workspace, asked in this process: for previews, trials and `why`. Nothing is recorded.

In: a workspace. Out: matchers that decide as a worker would, and the answers of operators about a single item.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from runnel.algebra.nodes.calls import Call
from runnel.algebra.nodes.query import Node, conditions_of
from runnel.algebra.semantics.bindings import Answers
from runnel.algebra.semantics.close_conditions import has_calls
from runnel.algebra.semantics.trace import unanswered
from runnel.catalog.declared.operators import callable_operators
from runnel.catalog.learned.operator_cache import live_segments
from runnel.catalog.learned.operator_statistics import learned_operators
from runnel.engine.workspace import Workspace
from runnel.matching.contract import Matcher
from runnel.model.item import Attributes, Item
from runnel.model.learned.operator_statistics import OperatorStatistics
from runnel.model.operator import Rows
from runnel.plan.store import Plan

if TYPE_CHECKING:
    from runnel.matching.operators.decide.operators_in_process import DecidingMatcher, Operators


_ALL = 1_000
"""Registrations of a name that `why` may need: an item is matched with the query as it was."""


class OperatorSession:
    """The operators of a workspace, asked in this process."""

    def __init__(self, workspace: Workspace) -> None:
        # Imported here, as the compiler of kernels takes a second to load.
        from runnel.matching.operators.ask.operator_environment import OperatorEnvironment
        from runnel.matching.operators.decide.operators_in_process import Operators

        with workspace.catalog.read() as connection:
            declarations = callable_operators(connection, versions=_ALL)
            segments = [one.path for one in live_segments(connection)]
            self._learned: OperatorStatistics = learned_operators(connection)
        self._operators: Operators = Operators(
            workspace.storage, OperatorEnvironment.of(workspace.settings, workspace.storage)
        )
        self._operators.use(declarations, segments)
        self.reasons: dict[str, str] = {}
        """Why operators gave no answer, by name."""

    def matcher(self, plan: Plan, matcher: Matcher) -> DecidingMatcher:
        """The matcher of a plan, with operators that decide its disjuncts."""
        from runnel.matching.operators.decide.operators_in_process import DecidingMatcher

        return DecidingMatcher(matcher, self._operators.new_decider(plan, self._learned))

    def answers(self, attributes: Attributes) -> Answers:
        """The answers of operators about one item; each call is asked once."""
        from runnel.matching.operators.decide.questions import question_of
        from runnel.matching.operators.plugins.contract import Failed

        known: dict[Call, Rows | None] = {}

        def answer(call: Call) -> Rows | None:
            question = call.question
            if question not in known:
                (said,) = self._operators.caller.ask([question_of(call, attributes)])
                if isinstance(said, Failed):
                    self.reasons[call.operator] = said.reason
                known[question] = None if isinstance(said, Failed) else said
            return known[question]

        return answer

    def close(self) -> None:
        """End all processes of operators."""
        self._operators.close()


@contextmanager
def open_operator_session(workspace: Workspace) -> Iterator[OperatorSession]:
    """A session that is closed at the end of the block."""
    session = OperatorSession(workspace)
    try:
        yield session
    finally:
        session.close()


@contextmanager
def answering(
    workspace: Workspace, item: Item, definitions: Mapping[int, Node]
) -> Iterator[tuple[Answers, Mapping[str, str]]]:
    """The answers of operators about one item, and why some have none; without a call in a query none is asked."""
    if not any(has_calls(one) for node in definitions.values() for one in conditions_of(node)):
        yield unanswered, {}
        return
    with open_operator_session(workspace) as session:
        yield session.answers(item.attributes), session.reasons
