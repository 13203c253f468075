"""Name resolution. In: parsed queries, and functions that look up names. Out: query nodes with IDs."""
