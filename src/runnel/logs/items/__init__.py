"""The item log: accepting items, reading them by sequence or by time, and archiving them.

In: items. Out: segments and Parquet files.
"""
