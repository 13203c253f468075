"""Partitions at run time: loading them within a budget of memory, and routing items to them."""
