"""Item patterns of every condition family: batches in, patterns that hold and their bindings out.

`contract` says what a family provides. The other modules lay out, load and match the patterns of a plan through it.
"""
