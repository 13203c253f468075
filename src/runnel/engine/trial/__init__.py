"""Matching outside the stream: previews, trials, and the operators that they ask."""
