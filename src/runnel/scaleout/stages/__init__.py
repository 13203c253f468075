"""The two stages of a partitioned plan: route items to partitions, then match them there.

In: slices of items. Out: match parts on storage, and the load of each partition.
"""
