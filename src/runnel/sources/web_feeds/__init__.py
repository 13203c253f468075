"""Web feeds: polls each feed when it is due, and receives pushes from WebSub hubs.

In: the addresses of feeds. Out: accepted items, and the time of the next poll of each feed.
"""
