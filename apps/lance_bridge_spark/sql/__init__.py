"""The Python half of the SQL catalog: it handles the calls of Spark's driver.

`service` plans reads and writes, and dispatches the other calls to `entries` (namespaces and
tables), `new_tables` (CREATE and REPLACE) and `changes` (ALTER TABLE).
"""
