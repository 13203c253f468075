"""What is known of every web feed: when it is due, its validators, and its hubs.

In: outcomes of polls and WebSub requests. Out: feeds that are due, and problems to show.
"""
