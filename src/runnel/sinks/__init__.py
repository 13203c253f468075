"""Sinks: feed files, JSON lines, mail, webhooks, materialized feeds, and the match log itself.

In: a Delivery, the items of one message for one subscription. Out: a complete, durable document at the subscription's
target, and an outcome for the ledger. Every sink is a plug-in of the entry point group `runnel.sinks`. Delivering the
same message twice has no further effect.
"""
