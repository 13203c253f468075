"""Built-in operators about texts: language, similarity, near-duplicates and meaning."""
