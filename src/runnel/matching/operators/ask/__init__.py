"""Asking operators: caches, budgets, retries, and what is learned of calls.

In: questions about items. Out: an answer for each, or a failure.
"""
