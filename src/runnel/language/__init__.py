"""The language: parsing of scripts, binding of names, and printing of statements as canonical text.

In: a script. Out: `parse` returns statements with their spans. `bind_query` returns a query node with feed IDs.
`print_statement` returns the canonical text of a statement s, for which parse(print_statement(s)) yields s again.
"""
