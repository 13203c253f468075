"""Names to ids: parsed queries and the names that the catalog knows in, bound query nodes out."""
