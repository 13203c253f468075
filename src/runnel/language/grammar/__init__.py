"""Text to statements: the grammar, the parser with its transformer, token checks and error descriptions.

In: a script. Out: statements with their spans, or a StatementError that names the mistake.
"""
