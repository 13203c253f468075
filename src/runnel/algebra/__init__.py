"""Expressions over items and query nodes over feeds; the reference evaluator, which defines what they mean.

In: expressions built by the language. Out: truth (evaluate), text (render), stored form (encode), traces (why).
"""
