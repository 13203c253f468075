"""Storage: the files of a workspace, with checksums, and the Arrow and Parquet formats.

In: paths and bytes. Out: durable files. This package does not import the catalog, so that workers start quickly.
"""
