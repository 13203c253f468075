"""Fast parsing of scripts with very many similar statements.

In: a long script. Out: the statements that the parser would give; each shape of statement is parsed once.
"""
