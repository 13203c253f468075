"""The runner: the single process that acquires, matches and delivers for a workspace."""
