"""The web side of a workspace: the report, health and metrics, WebSub callbacks, and pages for links in messages.

In: figures about a run, and requests from outside. Out: HTML that loads nothing and runs no script, metrics for
Prometheus, and responses to hubs and mail readers.
"""
