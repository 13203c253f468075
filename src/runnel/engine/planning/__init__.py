"""Planning: from what is declared to the plan version that is matched, whole or distributed over workers."""
