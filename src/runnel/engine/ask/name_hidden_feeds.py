"""Names of hidden feeds for explanations.

In: the definitions of feeds, and the names that an actor may see. Out: names that also describe the hidden feeds:
the windows of joins, and gates below others.
"""

from __future__ import annotations

from collections.abc import Mapping

from runnel.algebra.nodes.query import Gated, Node, reads


def name_hidden_feeds(names: Mapping[int, str], definitions: Mapping[int, Node]) -> dict[int, str]:
    """Return the names, and a description of each hidden feed among the definitions, which has no name."""
    described = dict(names)
    for feed, node in definitions.items():
        if isinstance(node, Gated) and feed not in names:
            described[feed] = _describe(feed, node, definitions)
    return described


def _describe(feed: int, node: Gated, definitions: Mapping[int, Node]) -> str:
    if not node.rule.stores_items:
        return f"the inner {node.rule.kind}"
    joins = [
        other.rule.annotation_name
        for other in definitions.values()
        if isinstance(other, Gated) and other.window is not None and feed in reads(other.window)
    ]
    return f"the window of {' and '.join(sorted(set(joins)))}"
