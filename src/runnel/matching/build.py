"""The matcher of a plan."""

from __future__ import annotations

from runnel.matching.contract import Matcher
from runnel.matching.filters.streams.matcher import StreamMatcher
from runnel.plan.store import Plan


def build_matcher(plan: Plan) -> Matcher:
    """The matcher of a loaded plan: base and delta behind one contract."""
    return StreamMatcher(plan)
