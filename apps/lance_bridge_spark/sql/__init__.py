"""The Python half of the SQL catalog: it handles the calls of Spark's driver.

`service` dispatches calls. `namespaces`, `tables`, `new_tables` (CREATE and REPLACE), `changes`
(ALTER TABLE) and `planning` (reads and writes) implement them, with schemas of `columns`.
"""
