"""No import cycles between modules, including imports inside functions and for type checking."""

from __future__ import annotations

from collections.abc import Mapping, Set

import grimp

KNOWN: list[set[str]] = []
"""Cycles that are tolerated for now. Remove a cycle here when it is broken."""


def cycles(imports: Mapping[str, Set[str]]) -> list[set[str]]:
    """Return the strongly connected components: sets of modules that all import one another."""
    reachable = {module: _reachable(imports, module) for module in imports}
    components: list[set[str]] = []
    for module in sorted(imports):
        group = {other for other in reachable[module] if module in reachable[other]}
        if group and group not in components:
            components.append(group)
    return components


def _reachable(imports: Mapping[str, Set[str]], start: str) -> set[str]:
    reached: set[str] = set()
    waiting = [*imports[start]]
    while waiting:
        module = waiting.pop()
        if module not in reached:
            reached.add(module)
            waiting += imports[module]
    return reached


def test_cycles_are_found() -> None:
    imports = {
        "a": {"b"},
        "b": {"c"},
        "c": {"b", "d"},
        "d": set(),
        "e": {"e"},
        "f": {"g", "h"},
        "g": {"h"},
        "h": {"f"},
    }
    assert cycles(imports) == [{"b", "c"}, {"e"}, {"f", "g", "h"}]
    assert cycles({}) == []


def test_there_are_no_unknown_import_cycles() -> None:
    graph = grimp.build_graph("runnel", cache_dir=None)
    # The top-level package imports its public names lazily, so its imports do not count.
    modules = graph.modules - {"runnel"}
    imports = {module: graph.find_modules_directly_imported_by(module) & modules for module in modules}
    assert len(imports) > 400
    assert sorted(map(sorted, cycles(imports))) == sorted(map(sorted, KNOWN))
