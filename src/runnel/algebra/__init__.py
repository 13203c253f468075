"""Conditions on items, query nodes over feeds, and the reference evaluator that defines their meaning.

In: expressions of the language. Out: truth values (`semantics.evaluate`), text (`nodes.render`), a stored
form (`nodes.encode`) and traces (`semantics.trace`). `values` handles words, links and networks.
"""
