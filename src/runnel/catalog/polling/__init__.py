"""The state of every source: when a web feed is due, its validators and hubs, and the files that were read.

In: results of polls, WebSub requests and file reads. Out: feeds that are due, files that changed, and problems.
"""
