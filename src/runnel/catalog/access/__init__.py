"""Owners, their tokens, and the secrets and keys of a workspace.

In: owners, quotas, tokens. Out: who may do what, and the keys that messages are signed with.
"""
