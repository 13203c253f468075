"""The data model: plain frozen data without I/O.

Item and ItemBatch, Feed, Subscription, Matches and Message, which all other packages use.
"""
