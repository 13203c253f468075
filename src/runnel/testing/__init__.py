"""For tests, demonstrations and benchmarks, ours and our users': worlds of news, and stand-ins for the outside.

In: a seed. Out: feeds, items, queries and subscriptions that are the same on every machine.
"""
