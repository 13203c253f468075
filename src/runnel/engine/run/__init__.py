"""The runner: the one process that acquires, matches and delivers for a workspace."""
