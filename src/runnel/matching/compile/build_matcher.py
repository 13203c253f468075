"""The matcher of a plan: streams, or the one that the plan names.

In: a loaded plan. Out: its matcher. A plan is matched by streams unless it was compiled for another matcher; then
its base has the name, and the entry points of `runnel.matchers` have the class.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from runnel.arrays import Array, Arrays
from runnel.entry_points import load_named
from runnel.errors import CorruptDataError
from runnel.matching.contract import Matcher, MatcherClass
from runnel.matching.filters.streams.stream_matcher import StreamMatcher
from runnel.plan.store import Plan

GROUP: Final = "runnel.matchers"
STREAMS: Final = "streams"

_NAME: Final = "matcher.name"


def build_matcher(plan: Plan) -> Matcher:
    """The matcher of a loaded plan: base and delta behind one contract."""
    return find_matcher(matcher_name(plan))(plan)


def find_matcher(name: str) -> MatcherClass:
    """The matcher of a name. Streams need no lookup, so that no worker depends on how Runnel was installed."""
    found: MatcherClass = StreamMatcher if name == STREAMS else load_named(GROUP, name)
    return found


def matcher_name(plan: Plan) -> str:
    """The name of a plan's matcher. The base decides: a delta is small compared with it."""
    return stored_name(plan.base.layout)


def stored_name(arrays: Arrays) -> str:
    """The name among the arrays of a plan part.

    >>> stored_name(name_arrays("tree")), stored_name({})
    ('tree', 'streams')
    """
    if _NAME not in arrays:
        return STREAMS
    try:
        return bytes(np.asarray(arrays[_NAME], dtype=np.uint8)).decode("ascii")
    except UnicodeDecodeError as error:
        raise CorruptDataError("the name of the plan's matcher is damaged") from error


def name_arrays(name: str) -> dict[str, Array]:
    """The arrays that name a matcher; none for streams."""
    return {} if name == STREAMS else {_NAME: np.frombuffer(name.encode("ascii"), dtype=np.uint8)}
