"""What happens inside a Lance table, over pylance and the location that the catalog gave.

All modules share `expressions` (SQL in requests) and `paths` (fields by name). Rows come in by
`data`, and are written by `create`, `insert`, `merge` and `change`. `query` finds rows,
`schema_evolution` changes columns, and `history` has versions, tags, branches and transactions.
"""

SMALL_FRAGMENT = 1024 * 1024
"""Rows below which compaction merges a fragment with others by default.

It is defined here because the help of a command shows it, without importing Lance.
"""
