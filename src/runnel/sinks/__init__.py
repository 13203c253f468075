"""Sinks: feed files, JSON lines, mail, webhooks, materialised feeds, and the match log itself.

In: a Delivery, the items of one message for one subscription. Out: a document at the subscription's target, whole and
durable, and an outcome for the ledger. Every sink is a plug-in of the entry point group `runnel.sinks`; delivering
the same message twice changes nothing.
"""
