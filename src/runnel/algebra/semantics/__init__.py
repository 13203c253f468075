"""The reference semantics: slow, short, and the definition of every condition and query.

In: nodes and items. Out: truth values, bindings, the rules of gates, and traces for `why`.
"""
