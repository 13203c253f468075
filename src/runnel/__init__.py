"""Runnel."""
