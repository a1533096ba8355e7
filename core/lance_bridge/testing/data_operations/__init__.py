"""Cases: operations on the data of a table: rows, columns, indices, versions, branches.

Lance does them alike on every catalog. So the kit asks whether each works once on a table of this
one, and what each answers where there is no table, no branch or no data. The cases share a
namespace.
"""
