"""The nouns: plain frozen data, no I/O.

In: nothing. Out: Item and ItemBatch, Feed, Subscription, Matches and Message, which every other folder speaks.
"""
