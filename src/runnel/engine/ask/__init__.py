"""Read-only requests to a workspace: show, explain, why, status and usage.

Only `slow_queries` writes: it records sampled costs and which slow queries it has reported.
"""
