"""Implementation-managed tables: the catalog holds their versions.

The entry names the latest version. A commit stages a manifest and compares and sets the entry,
which is the commit (`commits`, `compare_and_set`); then the manifest gets its final name
(`version_directory`). Any later client finishes a commit whose client died between these steps. A
commit to several tables has a record that decides it in all of them at once; `batches` has these
records, and ends the batch of a client that died. Versions in storage that were not committed
through the catalog are not shown; `out_of_band` adopts or discards them. `conversion` makes a table
implementation-managed and returns it to its storage.
"""

from .out_of_band import OutOfBand

__all__ = ["OutOfBand"]
