"""The guarded door: all that is fetched, posted, parsed or transformed for others goes through here.

In: addresses, documents and stylesheets that nobody vouches for. Out: bounded answers, screened trees, or an error
that says what was refused. Nothing here knows of feeds or subscriptions.
"""
