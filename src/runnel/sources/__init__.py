"""The outside world to items: web feeds, files and drop folders, fetched, decoded and adapted.

In: bytes of RSS, Atom, JSON Feed, JSON lines or RDF, from a poll, a hub's push or a scan of a feed's address. Out:
items, oldest first, accepted into the item log, and the problems of those that could not be taken.
"""
