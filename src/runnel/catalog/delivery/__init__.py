"""The delivery ledger: messages, attempts, cursors and receipts.

In: recorded messages and ended attempts. Out: what is due, and what became of it.
"""
