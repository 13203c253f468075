"""The database: connection, schema, migrations, counters, sequences and leases.

In: a database URL. Out: a `Catalog`, whose transactions the other folders of the catalog use.
"""
