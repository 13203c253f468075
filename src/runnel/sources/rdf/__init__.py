"""RDF documents to wire documents, and the graphs that RSS 1.0 entries carry."""
