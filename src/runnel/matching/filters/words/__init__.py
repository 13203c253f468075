"""The tokenizer, which reads UTF-8 buffers directly, and the hash table of a plan's words.

In: Arrow text columns. Out: numbers of words.
"""
