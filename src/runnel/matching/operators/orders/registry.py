"""All orders by name. They decide the same and differ in how many calls that takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from runnel.matching.operators.orders.adaptive import adaptive, adaptive_weighted
from runnel.matching.operators.orders.order import Order
from runnel.matching.operators.orders.problem import OrderProblem
from runnel.matching.operators.orders.static_greedy import static_greedy
from runnel.papers.operators.kruskal import kruskal
from runnel.papers.operators.naive import naive
from runnel.papers.operators.sequential import sequential
from runnel.papers.operators.sub_order import sub_order

ORDERS: Mapping[str, Callable[[OrderProblem], Order]] = MappingProxyType(
    {
        "naive": naive,
        "sequential": sequential,
        "kruskal": kruskal,
        "sub_order": sub_order,
        "static_greedy": static_greedy,
        "adaptive": adaptive,
        "adaptive_weighted": adaptive_weighted,
    }
)
