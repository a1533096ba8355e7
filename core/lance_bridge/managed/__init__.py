"""Tables whose versions the catalog holds: implementation-managed tables.

The entry names the latest version (`state`). A commit stages a manifest, compares and sets the
entry, which is the commit, and then gives the manifest its final name (`directory`, `commits`). A
crash between leaves work that whoever comes next finishes. What is in storage and was never
committed through the catalog is not shown; `foreign` adopts or discards it. `conversion` makes a
table managed and lets it go again, `view` is what pylance asks while it commits.
"""
