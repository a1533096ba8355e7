"""The Python half of the SQL catalog: it handles the calls of Spark's driver.

`service` dispatches calls. `namespaces`, `tables`, `changes` (ALTER TABLE), `staging` and
`publishing` (CREATE and REPLACE with a query), `planning` (reads and writes) and `schemas`
implement them; `loaded` caches loaded tables.
"""
