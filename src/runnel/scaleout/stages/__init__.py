"""The two stages of a partitioned plan: route items to partitions, then match them there.

In: slices. Out: written match parts, and the load of each partition.
"""
