"""Web feeds: polling each when it is due, and WebSub for those that push.

In: addresses of feeds. Out: documents, and what was learned about when to poll again.
"""
