"""The contract of operators, their registry, and the processes in which plug-ins run.

In: the source of an operator, such as `module:Class`. Out: an operator that can be called.
"""
