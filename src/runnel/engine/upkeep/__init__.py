"""Maintenance: deleting unneeded data, backups, and restoring them."""
