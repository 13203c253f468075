"""Matching outside the stream: previews, tests, and the operators that they call."""
