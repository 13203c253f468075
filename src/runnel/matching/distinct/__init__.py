"""Distinct feeds: claims of workers, and which items pass the gates, in the order of the log."""
