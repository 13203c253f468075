"""Changes of tables in documents. In: JSON lines, JSON arrays or CSV. Out: items of a table, and problems with their
position.
"""
