"""Find orders by name. All orders lead to the same decisions, but with different numbers of calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from runnel.entry_points import load_named, plugin_names
from runnel.matching.operators.orders.adaptive import adaptive
from runnel.matching.operators.orders.order import Order
from runnel.matching.operators.orders.problem import OrderProblem
from runnel.matching.operators.orders.static_greedy import static_greedy

MakeOrder = Callable[[OrderProblem], Order]

GROUP: Final = "runnel.operator_orders"
_IN_USE: Final[dict[str, MakeOrder]] = {"static_greedy": static_greedy, "adaptive": adaptive}
"""The candidates if the settings name no order. Workers find them without searching entry points."""

CANDIDATES: Final = tuple(_IN_USE)


def find_order(name: str) -> MakeOrder:
    """Return the function that makes an order: one of the two in use, or an entry point of `runnel.operator_orders`.

    >>> find_order("sub_order").__module__
    'runnel.papers.operators.sub_order'
    """
    make_order: MakeOrder = _IN_USE[name] if name in _IN_USE else load_named(GROUP, name)
    return make_order


def installed_orders() -> dict[str, MakeOrder]:
    """Return all installed orders by name."""
    return {name: find_order(name) for name in plugin_names(GROUP)}
