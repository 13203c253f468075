"""The command line. Each command calls the engine and prints the outcome.

In: the arguments of a command. Out: text or lines of JSON, and an exit code.
"""
