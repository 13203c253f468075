"""Sandboxes: child processes with limits on time and memory, in which untrusted input is handled.

In: stylesheets, rules, RDF documents and broken feeds. Out: results, or the reason why the process ended. `process`
starts all sandboxes. The `*_child` modules are their programs, which import only what they need.
"""
