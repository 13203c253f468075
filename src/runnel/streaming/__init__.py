"""Matching on Spark, and the only folder that imports pyspark.

In: the item log, read as slices whose offset is (last sequence, plan version). Out: the match log, batch by batch.
One streaming query serves all standing queries. The modules in `worker` run in Spark's Python workers, all others in
the driver or in processes on its machine. `ports` selects the implementation that matches a plan whose queries are
distributed over workers.
"""
