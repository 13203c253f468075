"""The delivery ledger: messages, attempts, cursors and receipts.

In: recorded messages and finished attempts. Out: messages that are due, and their outcomes.
"""
