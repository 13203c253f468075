"""The item log: accept items, read them by sequence or by time, and archive them.

In: items. Out: segments and Parquet files.
"""
