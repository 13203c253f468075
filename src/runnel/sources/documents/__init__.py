"""Decoders for each document format, the wire document that they return, and its conversion to items.

In: the bytes of a document. Out: items and problems, from `adapt(decode(data, name), feed)`.
"""
