"""Decodes RDF documents to wire documents, and adds graphs to the entries of RSS 1.0 feeds."""
