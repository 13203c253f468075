"""The catalog: all declarations, and the manifests of the logs, in one SQL database.

In: declarations, segments, plans, leases, messages. Out: the same, consistently: one transaction is one step of the
system. A file of the workspace exists when its row is here. SQLite by default; nothing is written that PostgreSQL
lacks. `store` opens the database; the other folders hold one subject of its tables each.
"""
