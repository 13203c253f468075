"""Tables as files. In: the changes of tables in the item log. Out: their rows as of any kept sequence, and the files
from which they are read.
"""
