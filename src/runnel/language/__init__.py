"""The language: text to statements, statements to bound queries, and back to canonical text.

In: a script. Out: `parse(text)` gives statements with their spans; `bind_query` gives a query node with feed ids;
`print_statement` gives the canonical text, for which parse(print_statement(s)) == s.
"""
