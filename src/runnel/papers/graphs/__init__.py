"""Ways to match graph patterns that Runnel's own is compared with: patterns and publications in, pairs out.

`contract` says what all of them are; `registry` names them. All give the same pairs, and differ in what they touch.
"""
