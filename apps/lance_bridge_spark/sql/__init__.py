"""The Python half of the SQL catalog: it answers what Spark's driver asks about names.

`service` takes a question apart and words its answer; the others do the work: `namespaces`,
`tables`, `changes` (ALTER TABLE), `staging` (CREATE and REPLACE with a query), `schemas` and
`travel` (VERSION and TIMESTAMP AS OF).
"""
