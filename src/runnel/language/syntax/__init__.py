"""Tokens, statements and their parts: literals, conditions and graph patterns, each checked with its place.

In: a script. Out: its tokens; and for the rules of the parser, parts of statements, or an error with a span.
"""
