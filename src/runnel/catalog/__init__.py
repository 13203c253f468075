"""The catalog: all declarations, and the manifests of the logs, in one SQL database.

In: declarations, segments, plans, leases, messages. Out: consistent views of them; every step of the system is one
transaction. A file of the workspace exists only if the catalog has its row. The default is SQLite; all statements
also work on PostgreSQL. `store` opens the database; each other folder contains one subject of its tables.
"""
