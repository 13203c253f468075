"""Declaring: scripts of statements in, a new plan version out; each script is one transaction, all or nothing."""
