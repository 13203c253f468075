"""The commands. Thin: each calls the engine and prints what it says.

In: the words of a command line. Out: lines for a person, or JSON for a program, and an exit code.
"""
