"""The network: an HTTP client that reaches public addresses only and within limits.

In: URLs that nobody vouches for. Out: bounded answers, or an error that says what was refused.
"""
