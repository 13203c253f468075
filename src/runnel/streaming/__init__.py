"""Matching on Spark, and the only folder that imports pyspark.

In: the item log, read as slices whose offset is (last sequence, plan version). Out: the match log, batch by batch.
One streaming query serves all standing queries. `worker` runs in Spark's Python workers, the rest in the driver
and next to it. Plans whose queries are distributed over workers are matched behind `ports`.
"""
