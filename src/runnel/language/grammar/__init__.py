"""The parser: rules for statements, conditions and values, and the tables that name them.

In: a script. Out: statements with their spans, or a StatementError that names the mistake.
"""
