"""Cases: operations on the data of a table: rows, columns, indices, versions, branches.

None of them depends on how a catalog keeps its entries, so one target of each kind of catalog runs
them in full, and the other targets `SmokeCases`. The cases share a namespace, and those that only
read share a table.
"""
