"""Containment and merging: patterns that come and go in, the few that every publication is asked about out.

A pattern contains another if it holds of every graph that the other holds of (`definition`). Of such patterns only
the root is asked about every publication (`containment_index`); roots that are often matched together become one
merger (`merge_roots`, `publication_summaries`). `root_index` matches in two stages: roots and mergers, then what lies
below those that hold.
"""
