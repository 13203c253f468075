"""Delivery: records messages for committed matches, and sends them to endpoints.

In: the match log and the subscriptions. Out: recorded messages (`recorder`), composed deliveries (`composer`),
attempts (`dispatcher` for local sinks, `sender` for all others), and their results in the ledger (`settle_attempts`).
Dead letters can be sent again (`dead_letters`).
"""
