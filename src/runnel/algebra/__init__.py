"""Conditions on items and query nodes over feeds; the reference evaluator, which defines what they mean.

In: expressions built by the language. Out: truth (`semantics.evaluate`), text (`nodes.render`), stored form
(`nodes.encode`), traces (`semantics.trace`). `values` knows words, links and networks, `nodes` conditions on them.
"""
