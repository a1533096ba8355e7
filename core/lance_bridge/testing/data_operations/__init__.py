"""Cases: what happens inside a table: rows, queries, columns, indices, versions, tags, branches.

None of it depends on how a catalog keeps its entries, so that a target may ask for one case of
each group only: `Features.inside_in_full`. Cases here share a namespace, and those that only read
share a table.
"""
