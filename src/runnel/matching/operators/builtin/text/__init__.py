"""Operators about texts: language, similarity, near-duplicates, meaning."""
