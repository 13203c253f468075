"""Temporary plans: queries compiled into a local folder that is deleted after use.

In: queries and their definitions. Out: a loaded plan for previews, tests, back-fills, `explain` and `runnel.compile`.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
import weakref
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path

from runnel.algebra.nodes.query import Node
from runnel.plan.logical_plan import PlanQuery
from runnel.plan.store import Plan, PlanVersion, load
from runnel.storage.file_storage import FileStorage

_PLAN = "plan"


class TemporaryPlan:
    """A compiled plan in a temporary folder, which is deleted with this object or at the end of a `with` block."""

    def __init__(
        self, queries: Iterable[PlanQuery], definitions: Mapping[int, Node], *, matcher: str = "streams"
    ) -> None:
        # Imported here, because numba, which compiles kernels, takes a second to load.
        from runnel.matching.compile.compile_plan import compile_base

        self.folder = tempfile.mkdtemp(prefix="runnel-plan-")
        self._removal = weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)
        compile_base(_storage(self.folder), _PLAN, list(queries), definitions, matcher=matcher)

    def __enter__(self) -> Plan:
        return self.plan

    def __exit__(self, *exception: object) -> None:
        self._removal()

    @cached_property
    def plan(self) -> Plan:
        """The loaded plan."""
        return load_temporary(self.folder)

    def keep_until_exit(self) -> None:
        """Keep the folder until the process exits, for lazy readers such as a DataFrame."""
        if self._removal.detach() is not None:
            atexit.register(shutil.rmtree, self.folder, ignore_errors=True)


def load_temporary(folder: str) -> Plan:
    """Load the plan in the folder of a `TemporaryPlan`, from any process on this machine."""
    return load(_storage(folder), PlanVersion(0, _PLAN))


def _storage(folder: str) -> FileStorage:
    return FileStorage(Path(folder).as_uri())
