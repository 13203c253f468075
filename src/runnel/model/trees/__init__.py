"""Trees: XML and JSON documents as values of the attribute `tree`.

In: the text of a document. Out: `DocumentTree`, its canonical text, and `TreeNodes`, its elements and attributes.
"""
