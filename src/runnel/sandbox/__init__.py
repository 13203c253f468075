"""Sandboxes: child processes with limits on time and memory, in which untrusted input is handled.

In: stylesheets, rules, RDF documents, broken feeds. Out: results, or the reason why the process ended.
`process` starts every one of them; `*_child` modules are their programs, and import nothing that they do not need.
"""
