"""The parser: grammar rules for statements, conditions and values, in tables by the tokens that begin them.

In: a script. Out: statements with their spans, or a StatementError that describes the mistake.
"""
