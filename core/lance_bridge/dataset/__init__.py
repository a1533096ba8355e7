"""What happens inside a Lance table, over pylance and the location that the catalog gave.

Here is what all share (`dataset`, `commits`, `expressions`, `paths`, `schema`), and the rows: how
they come in (`data`, `ipc`) and what is done with them (`create`, `insert`, `merge`, `change`), and
indices and statistics. `query` finds rows, `columns` changes the schema, `history` has versions,
tags, branches and transactions.
"""
