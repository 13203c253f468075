"""Declarations: feeds, subscriptions, operators, prefixes, tags and stylesheets.

In: bound statements. Out: rows by name and by id, and a count of changes.
"""
