"""The web side of a workspace: the report, health and metrics, WebSub callbacks and unsubscribe pages.

In: figures about a run, and requests from outside. Out: HTML that needs no network and runs no script, metrics for
Prometheus, and answers to hubs and mail readers.
"""
