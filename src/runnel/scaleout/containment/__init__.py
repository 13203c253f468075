"""Containment and merging of graph patterns, so that few patterns have to be checked for every publication.

A pattern contains another if it holds for every graph for which the other holds (`definition`). Patterns form trees,
in which each pattern contains those below it. Only the roots are checked for every publication (`containment_index`).
Roots that often match together are replaced by a *merger* that contains them (`merge_roots`,
`publication_summaries`). `root_index` matches in two stages: first roots and mergers, then the patterns below those
that hold.
"""
