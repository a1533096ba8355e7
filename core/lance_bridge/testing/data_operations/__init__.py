"""Cases: what operations do to the data of a table: rows, columns, indices, versions, branches.

None of it depends on how a catalog keeps its entries, so that one target of each kind of catalog
runs it in full, and the others `SmokeCases`. The cases share a namespace, and those that only read
share a table.
"""
