"""Pages for people. In: plain figures about a run. Out: HTML that needs no network and runs no script."""
