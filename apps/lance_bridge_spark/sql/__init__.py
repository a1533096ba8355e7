"""The Python half of the SQL catalog: it answers what Spark's driver asks about names.

`service` dispatches calls. `namespaces`, `tables`, `changes` (ALTER TABLE), `staging` and
`publishing` (CREATE and REPLACE with a query), `planning` (reads and writes) and `schemas` do the
work; `loaded` keeps loaded tables.
"""
