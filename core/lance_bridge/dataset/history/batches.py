"""Create versions of several tables together: all of them, or none."""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import unsupported
from ...managed import batch
from ...managed.commits import CatalogCommit
from ...records import FOREIGN_COMMITS, ForeignCommits
from ...storage.manifests import Manifest
from ...storage.staging import Staged
from ...table import Table
from . import versions


def create_versions(wanted: Sequence[tuple[Table, Staged]]) -> list[Manifest]:
    """Create a version of each table, or none; return their manifests in the same order.

    Raises:
        UnsupportedOperationError: (0) one table is named twice, or one of several is not managed by
            its catalog, or adopts versions that were committed without it.
        OutcomeUnknownError: (17) as `batch.commit`.
        LanceNamespaceError: what `versions.create` raises; nothing is created.
    """
    if len(wanted) == 1:
        return [versions.create(*wanted[0])]
    seen = set()
    for table, _ in wanted:
        if table.path in seen:
            raise unsupported(
                f"A batch can have one version of each table, and this one has two of "
                f"'{table.name}'"
            )
        seen.add(table.path)
        _require_batch_support(table)
    made = batch.commit([_prepare(table, staged) for table, staged in wanted])
    for table, _ in wanted:
        table.publish_after_commit()
    return made


def _require_batch_support(table: Table) -> None:
    """Check that versions of the table can be committed together with those of other tables.

    Raises:
        UnsupportedOperationError: (0)
    """
    table.require_own_versions()
    what = f"Table '{table.name}' cannot be part of a commit of several tables: "
    capabilities = table.connection.capabilities
    reason = capabilities.no_managed_tables or capabilities.no_alter
    if reason:
        raise unsupported(what + reason)
    if table.managed is None:
        raise unsupported(
            f"{what}its versions are managed by its storage, which commits to one table at a time. "
            "Have the catalog manage them (manage_table, or `lance-bridge managed begin`)"
        )
    if table.foreign_commits is ForeignCommits.ADOPT:
        raise unsupported(
            f"{what}with {FOREIGN_COMMITS}=adopt its storage decides which version is the next. "
            "Set it to hide or refuse"
        )


def _prepare(table: Table, staged: Staged) -> CatalogCommit:
    prepared = versions.prepare_creation(table, staged)
    if not isinstance(prepared, CatalogCommit):
        raise TypeError(prepared)
    return prepared
