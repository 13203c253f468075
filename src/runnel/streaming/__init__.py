"""The item's way through Spark, and the only folder that imports pyspark.

In: the item log, read as slices whose offset is (last sequence, plan version). Out: the match log, batch by batch.
One streaming query serves all standing queries.
"""
