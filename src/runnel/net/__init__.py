"""The network: an HTTP client that connects only to public addresses and limits the time and size of responses.

In: URLs from untrusted sources. Out: responses of limited size, or an error that gives the reason.
"""
