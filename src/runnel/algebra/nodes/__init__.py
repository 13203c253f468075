"""Conditions and query nodes as immutable values, with their canonical text and their stored form.

In: parsed and bound conditions and queries. Out: nodes, their canonical text (`render`) and their JSON (`encode`).
"""
