"""The outside world to items: what web feeds, files and drop folders hold, fetched, decoded and adapted.

In: bytes of RSS, Atom, JSON Feed or JSON lines, from a poll, a hub's push or a scan of a feed's address. Out:
`adapt(decode(data, name), feed)` gives items, oldest first, and the problems of those that could not be taken;
`fingerprint` tells an edited item from one already seen; `first_fetch` keeps a new feed from flooding its
subscribers.
"""
