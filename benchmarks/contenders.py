"""The ways to match filters that are compared: each compiles the same queries and gives a matcher under the contract.

A contender that needs a plan folder takes the one that `Setting` wrote; others start from the logical plan or from
the definitions. `COUNTED` says how many items a slow one is given.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

from benchmarks.counting import CountingMatcher
from benchmarks.workloads import SOURCE, QuerySet
from tests.scan_matcher import ScanMatcher

from runnel.algebra.nodes.expressions import TRUE
from runnel.algebra.nodes.query import Filter, Node, Read
from runnel.language.binding.bind_query import bind_query
from runnel.language.grammar.parser import parse
from runnel.language.syntax.statements import CreateFeed
from runnel.matching.compile.build_matcher import build_matcher
from runnel.matching.compile.compile_plan import compile_logical
from runnel.matching.contract import Matcher
from runnel.matching.filters.index.index_matcher import IndexMatcher
from runnel.papers.roses.tree_matcher import TreeMatcher
from runnel.plan.logical_plan import LogicalPlan
from runnel.plan.manifest import PlanManifest
from runnel.plan.store import Plan, PlanVersion, load
from runnel.storage.file_storage import Storage

_MOST_IN_TREE = 200_000


@dataclass(frozen=True)
class Compiled:
    """A matcher that is ready, what its making took, and what it keeps on disk."""

    matcher: Matcher
    seconds: float
    stored_bytes: int = 0


@dataclass(frozen=True)
class Setting:
    """What all contenders start from. `frequencies` are what is known of the words, or None."""

    queries: QuerySet
    storage: Storage
    frequencies: dict[str, float] | None = None

    @cached_property
    def logical(self) -> LogicalPlan:
        """The logical plan of the queries."""
        return self.queries.logical()

    @cached_property
    def base(self) -> tuple[PlanManifest, float]:
        """The plan folder of the queries, and the seconds that laying it out and writing it took."""
        logical = self.logical  # made before the clock starts: compiling begins with predicates
        started = time.process_time()
        manifest = compile_logical(self.storage, "base", logical, frequencies=self.frequencies)
        return manifest, time.process_time() - started

    def plan(self) -> Plan:
        """The plan folder, loaded."""
        return load(self.storage, PlanVersion(1, self.base[0].folder))


def scan(setting: Setting) -> Compiled:
    """Every query on every item, by the reference evaluator."""
    started = time.process_time()
    matcher = ScanMatcher(setting.queries.plan_queries(), setting.queries.definitions())
    return Compiled(matcher, time.process_time() - started)


def counting(setting: Setting) -> Compiled:
    """The counting algorithm."""
    started = time.process_time()
    matcher = CountingMatcher(setting.logical)
    return Compiled(matcher, time.process_time() - started)


def index(setting: Setting) -> Compiled:
    """The anchor index on arrays; it is laid out when a plan is loaded."""
    manifest, seconds = setting.base
    started = time.process_time()
    matcher = IndexMatcher(setting.plan())
    return Compiled(matcher, seconds + time.process_time() - started, manifest.size)


def streams(setting: Setting) -> Compiled:
    """What Runnel runs."""
    manifest, seconds = setting.base
    started = time.process_time()
    matcher = build_matcher(setting.plan())
    return Compiled(matcher, seconds + time.process_time() - started, manifest.size)


def tree(setting: Setting) -> Compiled:
    """A filter tree (RoSeS): an item goes down only where it passes; the tree is found when a plan is loaded."""
    if len(setting.queries) > _MOST_IN_TREE:
        raise ValueError(f"factoring more than {_MOST_IN_TREE} queries takes minutes")
    manifest, seconds = setting.base
    started = time.process_time()
    matcher = TreeMatcher(setting.plan())
    matcher.trees(SOURCE)
    return Compiled(matcher, seconds + time.process_time() - started, manifest.size)


CONTENDERS: dict[str, Callable[[Setting], Compiled]] = {
    "streams": streams,
    "index": index,
    "counting": counting,
    "tree": tree,
    "scan": scan,
}

COUNTED = {"scan": 50_000}
"""For a slow contender: about how many pairs of an item and a query it is asked about."""


def parsed(statements: Iterable[str], feed: str) -> dict[int, Node]:
    """The nodes of `create feed` statements over one source feed, numbered as in `QuerySet`."""
    nodes: dict[int, Node] = {}
    for number, text in enumerate(statements, start=SOURCE + 1):
        statement = parse(text)[0].statement
        if not isinstance(statement, CreateFeed):
            raise ValueError(f"not a query: {text}")
        nodes[number] = bind_query(statement.query, {feed: SOURCE}.get, lambda: [feed])
    return nodes


def everything(query: int) -> dict[int, Node]:
    """The definition of a query that matches every item."""
    return {query: Filter(Read(SOURCE), TRUE)}
