"""Storage: where the files of a workspace live, and the two kinds of files that most modules write.

In: paths and bytes. Out: durable files. No catalog here, so that workers start quickly.
"""
