"""Operators about places: distances and regions."""
