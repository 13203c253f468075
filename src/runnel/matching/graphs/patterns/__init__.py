"""The graph patterns of a plan part in arrays: built at compile time, mapped by every worker."""
