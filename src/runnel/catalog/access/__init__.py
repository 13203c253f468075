"""Owners, their tokens, and the secrets and keys of a workspace.

In: owners, quotas, tokens. Out: permissions, and the keys that sign messages.
"""
