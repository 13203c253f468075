"""Conditions and query nodes as immutable values, with their canonical text and their stored form.

In: what the language has parsed and bound. Out: nodes, `render`ed as text and `encode`d as JSON.
"""
