"""Build the matcher of a plan.

In: a loaded plan. Out: its matcher, which is the stream matcher unless the plan was compiled for another one. In that
case the base contains the name of the matcher, and an entry point of the group `runnel.matchers` provides its class.
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
    """Build the matcher of a loaded plan, that is, of its base and its delta together."""
    return find_matcher(matcher_name(plan))(plan)


def find_matcher(name: str) -> MatcherClass:
    """Return the matcher class with a name.

    The stream matcher needs no entry point, so workers do not depend on the metadata of Runnel's installation.
    """
    matcher: MatcherClass = StreamMatcher if name == STREAMS else load_named(GROUP, name)
    return matcher


def matcher_name(plan: Plan) -> str:
    """Return the name of a plan's matcher, which is the one of its base."""
    return stored_name(plan.base.layout)


def stored_name(arrays: Arrays) -> str:
    """Read the name of the matcher from the arrays of a plan part.

    >>> stored_name(name_arrays("tree")), stored_name({})
    ('tree', 'streams')
    """
    if _NAME not in arrays:
        return STREAMS
    try:
        return bytes(np.asarray(arrays[_NAME], dtype=np.uint8)).decode("ascii")
    except UnicodeDecodeError as error:
        raise CorruptDataError("the name of the plan's matcher is not ASCII text") from error


def name_arrays(name: str) -> dict[str, Array]:
    """Return the arrays that store the name of a matcher; there are none for the stream matcher."""
    return {} if name == STREAMS else {_NAME: np.frombuffer(name.encode("ascii"), dtype=np.uint8)}
