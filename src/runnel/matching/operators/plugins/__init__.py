"""The contract of operators, their registry, and the process in which a plug-in runs.

In: a source such as `module:Class`. Out: an operator that answers questions.
"""
