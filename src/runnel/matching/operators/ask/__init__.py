"""Calling operators: caches, budgets, retries, and statistics about calls.

In: questions about items. Out: an answer or a failure per question.
"""
