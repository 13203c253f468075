"""Words of texts: the tokeniser and the hash table of a plan's words, straight from UTF-8 buffers.

In: Arrow text columns. Out: numbers of words.
"""
