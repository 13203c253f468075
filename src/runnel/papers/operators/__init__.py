"""Orders of operator calls besides the two that Runnel recommends.

In: a problem. Out: an `Order`; `matching.operators.orders.registry` names them.
"""
