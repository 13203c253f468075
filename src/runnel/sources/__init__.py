"""The outside world to items: what arrives in files and drop folders, decoded and adapted, without a network.

In: bytes of RSS, Atom, JSON Feed or JSON lines, found by `scan` at a feed's address. Out: `adapt(decode(data, name),
feed)` gives items, oldest first, and the problems of those that could not be taken; `fingerprint` tells an edited
item from one already seen; `first_fetch` keeps a new feed from flooding its subscribers.
"""
