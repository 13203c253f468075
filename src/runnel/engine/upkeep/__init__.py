"""Maintenance: removing what nobody needs, backups, and restoring them."""
