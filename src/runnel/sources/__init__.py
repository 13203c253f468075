"""Sources: fetch documents of web feeds, files and drop folders, decode them, and accept their items.

In: documents in RSS, Atom, JSON Feed, JSON lines or RDF, from a poll, a hub's push, or a scan of a folder. Out: items
in the item log, oldest first, and problems of rejected documents and items in the quarantine.
"""
