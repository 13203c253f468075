"""Matching of item patterns, independent of their condition family.

In: a batch of items. Out: the patterns that hold and their bindings. `contract` defines the interface that a family
implements. The other modules compile, load and match the patterns of a plan through this interface.
"""
