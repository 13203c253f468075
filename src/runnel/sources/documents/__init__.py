"""Bytes to items: decoders for each format, the wire document, and its adaptation to items.

In: a document. Out: `adapt(decode(data, name), feed)` gives items and problems.
"""
