"""Partitions at run time: load them within a memory budget, and route items to them."""
