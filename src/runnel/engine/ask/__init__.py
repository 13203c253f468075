"""Questions about a workspace: show, explain, why, status, usage.

They only read, except that `slow_queries` records which slow queries it has reported.
"""
