"""Declaring: scripts of statements, each one transaction that ends with a new plan version."""
