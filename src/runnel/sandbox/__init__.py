"""Child processes with little time and memory, in which untrusted input is handled.

In: stylesheets, rules, RDF documents, broken feeds. Out: results, or the reason why the process ended.
`*_child` modules are the programs of these processes; they import nothing that they do not need.
"""
