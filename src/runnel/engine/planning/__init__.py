"""Planning: from what is declared to the plan version that is matched, in partitions where that is needed."""
