"""Adoption: the commit of a version that bypassed the catalog, unchanged.

Such a manifest is committed like any other: a copy of it is staged, and the compare-and-set of the
entry is the commit. So an earlier commit through the catalog wins, and the next client finishes
what a client that died has left.
"""

from __future__ import annotations

import hashlib
import logging
import re
import uuid

from ..entry import EntryT
from ..managed_state import State
from ..storage.manifest_content import ManifestContent, parse_manifest, parse_transaction
from ..storage.manifests import Scheme, name_of
from . import compare_and_set, recovery
from .versions import ManagedDirectory, managed_directory

_TRANSACTION = re.compile(r"(\d+)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\.txn")

logger = logging.getLogger(__name__)


def adopt_next(table: EntryT) -> EntryT | None:
    """Commit the uncommitted manifest of the next version; return the updated table.

    Returns None if it is not based on the latest version.

    Raises:
        ConcurrentModificationError: (14) another client commits, or holds the table.
        InvalidTableStateError: (19) as `recovery.resolve_batch`.
    """
    table = recovery.resolve_batch(table)
    compare_and_set.require_unlocked(table)
    directory = managed_directory(table, write=True)
    directory.finish()
    version = directory.state.version + 1
    data = directory.read_final(version)
    if data is None:
        return table.reloaded()
    try:
        reason = _find_objection(directory, data)
    except ValueError as error:
        reason = str(error)
    if reason:
        logger.warning("version %s of %s is not adopted: %s", version, table.name, reason)
        return None
    # Named by its content, so all clients that adopt the manifest stage the same file.
    digest = uuid.UUID(bytes=hashlib.sha256(data).digest()[:16])
    staged = f"{name_of(version, Scheme.V2)}-{digest}"
    directory.files.put_own(directory.within(staged), data)
    adopted = compare_and_set.swap(table, State(version, staged))
    logger.info("version %s of %s, which bypassed the catalog, is adopted", version, table.name)
    return adopted


def _find_objection(directory: ManagedDirectory, data: bytes) -> str:
    """Return why a manifest of the next version cannot be based on the latest, or "".

    Lance bases a commit on the manifest of the previous version, and the name of its transaction
    begins with the version that its writer read. Its data files show which manifest of that number
    it was: they are the parent's, or new in its transaction.

    Raises:
        ValueError: The manifest or its transaction cannot be read.
    """
    latest, content = directory.state.version, parse_manifest(data)
    read = _TRANSACTION.fullmatch(content.transaction_file)
    if content.version != latest + 1 or content.branch:
        return f"its manifest is of version {content.version} {content.branch}".rstrip()
    if read is None or int(read[1]) > latest:
        return f"its transaction {content.transaction_file!r} is not based on version {latest}"
    transaction = directory.files.read(f"_transactions/{read[0]}")
    if transaction is None:
        return f"its transaction {read[0]} is missing"
    committed = directory.read_final(latest)
    parent = parse_manifest(committed).data_files if committed is not None else frozenset()
    if not _explains(directory, transaction, content, parent):
        return f"its data files are not those of version {latest} and of its transaction"
    missing = directory.missing_data_files(content, known=parent)
    if missing:
        return f"its data file {missing[0]} is missing"
    rivals = directory.conflicting()
    theirs = {name for each in rivals for name in parse_manifest(each).data_files}
    is_ambiguous = rivals and not content.data_files & (parent - theirs)
    reason = f"it may be based on another version {latest}, which is quarantined"
    return reason if is_ambiguous else ""


def _explains(
    directory: ManagedDirectory,
    transaction: bytes,
    content: ManifestContent,
    parent: frozenset[str],
) -> bool:
    """Return whether a transaction can produce a manifest's data files from its parent's."""
    operation = parse_transaction(transaction)
    if operation.is_append and not parent <= content.data_files:
        return False
    new = content.data_files - parent
    if operation.restored is not None:
        restored = directory.read_final(operation.restored)
        new -= parse_manifest(restored).data_files if restored is not None else frozenset()
    return all(name.encode() in transaction for name in new)
