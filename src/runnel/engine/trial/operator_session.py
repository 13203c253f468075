"""Call the operators of a workspace in this process, for previews, tests and `why`. Nothing is recorded.

In: a workspace. Out: matchers that call operators like a worker does, and the answers of operators for a single item.
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


_MAX_VERSIONS = 1_000
"""Number of past registrations per operator that are available, because `why` evaluates old revisions of queries."""


class OperatorSession:
    """The operators of a workspace, started in this process. `reasons` are the failures by operator name."""

    def __init__(self, workspace: Workspace) -> None:
        # Imported here, because the kernel compiler takes a second to load.
        from runnel.matching.operators.ask.operator_environment import OperatorEnvironment
        from runnel.matching.operators.decide.operators_in_process import Operators

        with workspace.catalog.read() as connection:
            declarations = callable_operators(connection, versions=_MAX_VERSIONS)
            segments = [segment.path for segment in live_segments(connection)]
            self._learned: OperatorStatistics = learned_operators(connection)
        self._operators: Operators = Operators(
            workspace.storage, OperatorEnvironment.of(workspace.settings, workspace.storage)
        )
        self._operators.use(declarations, segments)
        self.reasons: dict[str, str] = {}

    def matcher(self, plan: Plan, matcher: Matcher) -> DecidingMatcher:
        """Return a matcher that calls operators to decide the disjuncts of a plan."""
        from runnel.matching.operators.decide.operators_in_process import DecidingMatcher

        return DecidingMatcher(matcher, self._operators.new_decider(plan, self._learned))

    def answers(self, attributes: Attributes) -> Answers:
        """Return a function that calls operators for one item, and calls each only once."""
        from runnel.matching.operators.decide.questions import question_of
        from runnel.matching.operators.plugins.contract import FailedCall

        cached: dict[Call, Rows | None] = {}

        def answer(call: Call) -> Rows | None:
            question = call.question
            if question not in cached:
                (response,) = self._operators.caller.ask([question_of(call, attributes)])
                if isinstance(response, FailedCall):
                    self.reasons[call.operator] = response.reason
                cached[question] = None if isinstance(response, FailedCall) else response
            return cached[question]

        return answer

    def close(self) -> None:
        """End the processes of all operators."""
        self._operators.close()


@contextmanager
def open_operator_session(workspace: Workspace) -> Iterator[OperatorSession]:
    """Open a session, and close it at the end of the block."""
    session = OperatorSession(workspace)
    try:
        yield session
    finally:
        session.close()


@contextmanager
def answering(
    workspace: Workspace, item: Item, definitions: Mapping[int, Node]
) -> Iterator[tuple[Answers, Mapping[str, str]]]:
    """Yield a function that calls operators for one item, and the failures by operator name.

    If no definition uses an operator, no session is opened.
    """
    if not any(has_calls(condition) for node in definitions.values() for condition in conditions_of(node)):
        yield unanswered, {}
        return
    with open_operator_session(workspace) as session:
        yield session.answers(item.attributes), session.reasons
