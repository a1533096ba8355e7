"""The entries of a catalog: what happens to namespaces and tables as names, written once.

One module per kind of entry (`namespaces`, `tables`), and what they share: `modes` of a request,
`properties` and marks, `placement` of new tables, `sharing` of locations, and `outcome` of changes
whose reply was lost.
"""
