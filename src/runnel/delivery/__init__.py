"""Delivery: committed matches to messages, and messages to endpoints.

In: the match log and the subscriptions. Out: recorded messages (`recorder`), composed deliveries (`composer`),
attempts (`sender`), and settled rows of the ledger; dead letters can be sent again.
"""
