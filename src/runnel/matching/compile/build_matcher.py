"""The matcher of a plan: the one that was chosen for its sources, or a router where they differ."""

from __future__ import annotations

from runnel.matching.compile.matcher_choice import matchers_of
from runnel.matching.compile.routed_matcher import MAKERS, RoutedMatcher
from runnel.matching.contract import Matcher
from runnel.matching.filters.streams.stream_matcher import StreamMatcher
from runnel.plan.store import Plan


def build_matcher(plan: Plan) -> Matcher:
    """The matcher of a loaded plan: base and delta behind one contract."""
    routes = matchers_of(plan)
    chosen = [name for name, sources in routes.items() if len(sources)]
    match chosen:
        case []:
            return StreamMatcher(plan)
        case [name]:
            return MAKERS[name](plan)
        case _:
            return RoutedMatcher(plan, routes)
