"""Tokens and the token reader, statements, and the construction of literals and conditions from tokens.

In: a script. Out: its tokens, and the parts of statements that grammar rules build from tokens, or a StatementError.
"""
