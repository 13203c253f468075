"""No module imports itself through others: neither at its top, nor inside functions, nor for type checking only."""

from __future__ import annotations

from collections.abc import Mapping, Set

import grimp

KNOWN: list[set[str]] = []
"""Cycles that are allowed until they are broken. A cycle that is gone has to be removed here."""


def cycles(imports: Mapping[str, Set[str]]) -> list[set[str]]:
    """The largest sets of modules that all import one another, directly or through others of the set."""
    reachable = {module: _reachable(imports, module) for module in imports}
    found: list[set[str]] = []
    for module in sorted(imports):
        group = {other for other in reachable[module] if module in reachable[other]}
        if group and group not in found:
            found.append(group)
    return found


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


def test_no_modules_import_one_another() -> None:
    graph = grimp.build_graph("runnel", cache_dir=None)
    # The package itself names what users import, and imports it when it is first used.
    modules = graph.modules - {"runnel"}
    imports = {one: graph.find_modules_directly_imported_by(one) & modules for one in modules}
    assert len(imports) > 400
    assert sorted(map(sorted, cycles(imports))) == sorted(map(sorted, KNOWN))
