"""Statistics of the stream, of operators and of queries, as plain data that can be merged."""
