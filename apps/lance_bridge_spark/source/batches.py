"""Which batches of a stream a table has: each is committed once, however often Spark sends it.

The transaction of a batch names its query and its number. A file beside the table's data names the
batch that a query has begun to commit, and since which version; it is written before the commit.
So a batch that comes again is looked for in the versions since then, and any other is not there.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import lance
from lance_namespace.errors import InvalidTableStateError, ServiceUnavailableError

from lance_bridge.lance_datasets import transaction_at
from lance_bridge.lance_errors import LANCE_ERRORS, first_line, translate_lance_errors
from lance_bridge.tables.history.manifests import TableFiles

if TYPE_CHECKING:
    from ..found_tables import SparkTable

QUERY = "lance_bridge.stream.query"
"""The property of a transaction with the identifier of a query, which outlives its restarts."""
BATCH = "lance_bridge.stream.batch"

_DIRECTORY = "_transactions"
"""What is in it goes when the table is dropped, and stays when the table is cleaned up."""


@dataclass(frozen=True)
class Batch:
    """A batch of a query."""

    query: str
    number: int

    @property
    def properties(self) -> dict[str, str]:
        """What its transaction says of it."""
        return {QUERY: self.query, BATCH: str(self.number)}

    def begin(self, table: SparkTable, dataset: lance.LanceDataset) -> bool:
        """Note that the batch is to be committed, unless it has been; return whether it has not.

        Args:
            dataset: Of any version of the table, on the branch that is written to.

        Raises:
            InvalidTableStateError: (19) a version was cleaned up that may have been the batch's.
            ServiceUnavailableError: (17) a version, or the note, cannot be read or written.
        """
        files = TableFiles(table.storage(write=True), table.location)
        path = f"{_DIRECTORY}/{self.query}.stream.json"
        with translate_lance_errors(
            f"The versions of table '{table.address.name}' could not be read"
        ):
            latest = int(dataset.latest_version)
        noted = json.loads(files.read(path) or b"{}")
        begun = int(noted.get("batch", -1))
        if begun == self.number:
            if noted.get("done"):
                return False
            where = f"{files.location}/{path}"
            versions = range(latest, int(noted["since"]), -1)
            return not any(self._is_of(table, dataset, version, where) for version in versions)
        if begun < self.number:
            note = {"batch": self.number, "since": latest}
            files.put_over(path, json.dumps(note).encode())
        return begun < self.number

    def _is_of(
        self, table: SparkTable, dataset: lance.LanceDataset, version: int, where: str
    ) -> bool:
        name = table.address.name
        try:
            transaction = transaction_at(dataset, version)
        except LANCE_ERRORS as error:
            with translate_lance_errors(f"The versions of table '{name}' could not be read"):
                is_there = version in {each["version"] for each in dataset.versions()}
            if is_there:
                raise ServiceUnavailableError(
                    f"Version {version} of table '{name}' could not be read: {first_line(error)}"
                ) from error
            raise InvalidTableStateError(
                f"Whether table '{name}' has batch {self.number} of the stream is not known: "
                f"version {version} may be that batch, and was cleaned up. Look for its rows. If "
                f'they are there, set "done" to true in {where}; if not, delete that file. Then '
                "start the stream again"
            ) from error
        found = (transaction and transaction.transaction_properties) or {}
        return found.get(QUERY) == self.query and int(found[BATCH]) == self.number
