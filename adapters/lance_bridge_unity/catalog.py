"""The catalog port on Unity Catalog: names, records and errors, over one client."""

from __future__ import annotations

import logging
import os
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TypeVar

from lance_namespace.errors import (
    InternalError,
    LanceNamespaceError,
    NamespaceNotEmptyError,
    PermissionDeniedError,
    ServiceUnavailableError,
)

from lance_bridge import locations
from lance_bridge.catalog import (
    TABLE_TYPE,
    Capabilities,
    Catalog,
    CatalogColumn,
    NamespaceRecord,
    Path,
    TableRecord,
    select_tables,
)
from lance_bridge.errors import (
    OutcomeUnknownError,
    concurrent_modification,
    display,
    invalid,
    namespace_already_exists,
    namespace_not_empty,
    table_already_exists,
    unsupported,
)
from lance_bridge.records import ENTRY_ID

from . import mapping, sql
from .client import Client, route
from .config import UnityConfig
from .errors import (
    RIGHTS_TO_CREATE_TABLE,
    RIGHTS_TO_DROP_NAMESPACE,
    RIGHTS_TO_DROP_TABLE,
    RIGHTS_TO_READ_NAMESPACE,
    RIGHTS_TO_READ_TABLE,
    RIGHTS_TO_RENAME_TABLE,
    ErrorReply,
    LostReply,
    rights_to_create,
    rights_to_vend,
    translate_errors,
)
from .mapping import NO_WAREHOUSE, STORAGE_ROOT

logger = logging.getLogger(__name__)

_COLLECTIONS = ("catalogs", "schemas", "tables")
_OWN_SCHEMA = "information_schema"
"""A schema of views in every catalog of Databricks, which cannot be dropped."""
_OTHER_CONTENT = {"volumes": "volumes", "functions": "functions", "models": "registered_models"}


class UnityCatalog(Catalog):
    """See :class:`~lance_bridge.catalog.Catalog` for what each method does and raises.

    A `path` is an identifier of the port; `full` always begins with the catalog.
    """

    def __init__(self, config: UnityConfig) -> None:
        self._config = config
        self._client = Client(config)
        self._capabilities = config.capabilities
        self._warehouse = sql.Warehouse(self._client, config) if config.warehouse_id else None
        catalog = config.catalog
        if catalog is not None and self._capabilities.folds_case:
            catalog = catalog.lower()
        self._pinned: Path = (catalog,) if catalog is not None else ()
        self._no_catalog = (
            "The property 'catalog' names it: create it without that property, as with: "
            f"lance-bridge ns create unity {catalog} -p host={config.address or 'ADDRESS'}"
            if catalog is not None
            else ""
        )

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    def describe_connection(self) -> str:
        address = self._config.address or f"profile={self._config.profile or 'of the environment'}"
        return ", catalog=".join((address, *self._pinned))

    def describe_login(self) -> str:
        config = self._config
        token = config.bearer.get_secret_value() if config.bearer else ""
        return " ".join((config.profile or "", config.client_id or "", token)).strip()

    def describe_server(self) -> Mapping[str, str]:
        dialect = "Databricks" if self._config.is_databricks else "open source"
        return {"server": "Unity Catalog", "dialect": dialect}

    def close(self) -> None:
        self._client.close()

    def _full(self, path: Path) -> Path:
        return (*self._pinned, *path)

    def _api_path(self, *parts: str) -> str:
        return self._config.api_path + "".join(parts)

    def _errors(
        self,
        what: str,
        full: Path,
        rights: str = "",
        duplicate: LanceNamespaceError | None = None,
        *,
        in_catalog: bool = False,
    ) -> AbstractContextManager[None]:
        """Do as `translate_errors`; Databricks' own messages say what right is missing.

        Args:
            in_catalog: Whether to say what to do if the property's catalog does not exist.
        """
        rights = "" if self._config.is_databricks else rights
        no_catalog = self._no_catalog if in_catalog else ""
        return translate_errors(
            what, full, duplicate=duplicate, rights=rights, no_catalog=no_catalog
        )

    def _object_path(self, full: Path) -> str:
        return self._api_path(route(_COLLECTIONS[len(full) - 1], *full))

    # -- namespaces ------------------------------------------------------------------------------

    def list_namespaces(self, parent: Path) -> Iterable[str]:
        full = self._full(parent)
        collection = _COLLECTIONS[len(full)]
        query = {"catalog_name": full[0]} if full else {}
        what = f"list the {collection} of '{display(full)}'" if full else "list the catalogs"
        with self._errors(what, full, in_catalog=True):
            rows = list(self._client.pages(self._api_path("/", collection), collection, query))
        names = {str(row["name"]) for row in rows if row.get("name")}
        hidden = _OWN_SCHEMA if full and self._config.is_databricks else None
        return sorted(names - {hidden})

    def load_namespace(self, path: Path) -> NamespaceRecord:
        full = self._full(path)
        what = f"read namespace '{display(full)}'"
        with self._errors(what, full, RIGHTS_TO_READ_NAMESPACE, in_catalog=True):
            return mapping.namespace_from(path, full, self._client.get(self._object_path(full)))

    def location_for_tables(self, namespace: NamespaceRecord) -> str | None:
        """Return a directory for one schema: schemas and catalogs may share a storage root."""
        full = self._full(namespace.path)
        root = namespace.location or self._catalog_location(full[0])
        return locations.join(root, *locations.namespace_directories(full)) if root else None

    def _catalog_location(self, catalog: str) -> str | None:
        full = (catalog,)
        try:
            with translate_errors(f"read catalog '{catalog}'", full):
                info = self._client.get(self._object_path(full))
        except PermissionDeniedError as error:
            logger.info("the location of catalog %s cannot be read: %s", catalog, error)
            return None
        return mapping.namespace_from(full, full, info).location

    def create_namespace(self, record: NamespaceRecord) -> None:
        full = self._full(record.path)
        body = mapping.namespace_body(full, record, databricks=self._config.is_databricks)
        exists = namespace_already_exists(full)
        what = f"create namespace '{display(full)}'"
        needs = rights_to_create(record, len(full))
        with lock_names(full), self._errors(what, full[:-1], needs, exists, in_catalog=True):
            self._client.change("POST", self._api_path("/", _COLLECTIONS[len(full) - 1]), body)
            _read_back(full, lambda: self.load_namespace(record.path), record, exists)

    def alter_namespace(self, record: NamespaceRecord) -> None:
        full = self._full(record.path)
        databricks = self._config.is_databricks
        body = mapping.namespace_changes(full, record.properties, databricks=databricks)
        if not body["properties"]:
            raise invalid(
                f"Namespace '{display(full)}' must keep at least one property: the server would "
                "ignore the removal of all"
            )
        key = STORAGE_ROOT[len(full) - 1]
        wanted = record.properties.get(key)
        if wanted and wanted != self.load_namespace(record.path).properties.get(key):
            raise invalid(f"Property {key} of '{display(full)}' cannot be changed")
        with translate_errors(f"change namespace '{display(full)}'", full):
            self._client.change("PATCH", self._object_path(full), body)

    def drop_namespace(self, path: Path) -> None:
        full = self._full(path)
        what = f"drop namespace '{display(full)}'"
        with lock_names(full), self._errors(what, full, RIGHTS_TO_DROP_NAMESPACE):
            try:
                # Without `force`, which would delete the tables inside and their files.
                self._client.change("DELETE", self._object_path(full), silent=True)
            except ErrorReply as error:
                if error.is_not_empty:
                    raise namespace_not_empty(full, error.text) from error
                raise

    def require_droppable(self, path: Path) -> None:
        full = self._full(path)
        if len(full) < 2:
            return
        query = {"catalog_name": full[0], "schema_name": full[1]}
        for collection, key in _OTHER_CONTENT.items():
            with translate_errors(f"list the {collection} of '{display(full)}'", full):
                found = next(self._client.pages(self._api_path("/", collection), key, query), None)
            if found is not None:
                raise namespace_not_empty(
                    full, f"It contains {collection}, such as {found.get('name')}"
                )

    def require_drop_permission(self, path: Path) -> None:
        """Try the drop: the server checks permissions before it checks for content.

        Permissions come from owners and grants on three levels; no call returns the result.
        """
        try:
            self.drop_namespace(path)
        except NamespaceNotEmptyError as error:
            logger.debug("may be dropped when it is empty: %s", error)

    # -- tables ----------------------------------------------------------------------------------

    def scan_tables(
        self, namespace: Path, *, lance_only: bool = False, after: str | None = None
    ) -> Iterable[TableRecord]:
        return select_tables(self._records(namespace), lance_only=lance_only, after=after)

    def _records(self, namespace: Path) -> Iterator[TableRecord]:
        for row in self._rows(namespace, {"omit_columns": "true"}):
            try:
                yield mapping.record_from(namespace, row)
            except InternalError as error:
                logger.warning("listed as unreadable: %s", error)
                yield TableRecord.unreadable((*namespace, mapping.label(row)))

    def list_tables(self, namespace: Path, *, lance_only: bool = False) -> Iterable[str]:
        if lance_only:
            return super().list_tables(namespace, lance_only=True)
        rows = self._rows(namespace, {"omit_columns": "true", "omit_properties": "true"})
        return sorted({str(row["name"]) for row in rows if row.get("name")})

    def _rows(self, namespace: Path, omit: Mapping[str, str]) -> Iterator[mapping.Json]:
        full = self._full(namespace)
        query = {"catalog_name": full[0], "schema_name": full[1], **omit}
        with translate_errors(f"list the tables of '{display(full)}'", full):
            yield from self._client.pages(self._api_path("/tables"), "tables", query)

    def load_table(self, path: Path) -> TableRecord:
        record = self._load_table(path)
        # The open-source server reads an entry, and then its properties. A Lance table that is
        # dropped in between looks like a text table without properties; the next read fails.
        while (
            record.entry_type == mapping.EXTERNAL
            and not record.properties
            and not self._config.is_databricks
        ):
            before, record = record, self._load_table(path)
            if record.identity == before.identity:
                break
        return record

    def load_columns(self, path: Path) -> Iterable[CatalogColumn]:
        full = self._full(path)
        with translate_errors(f"read the columns of table '{display(full)}'", full):
            return mapping.columns_from(self._client.get(self._object_path(full)))

    def _load_table(self, path: Path) -> TableRecord:
        full = self._full(path)
        with self._errors(f"read table '{display(full)}'", full, RIGHTS_TO_READ_TABLE):
            return mapping.record_from(path[:-1], self._client.get(self._object_path(full)))

    def create_table(self, record: TableRecord) -> TableRecord:
        full = self._full(record.path)
        exists = table_already_exists(full)
        what = f"create table '{display(full)}'"
        errors = self._errors(what, full[:-1], RIGHTS_TO_CREATE_TABLE, exists, in_catalog=True)
        with lock_names(full), errors:
            try:
                self._create(full, record)
            except ErrorReply as error:
                # The server refuses a location that is another table's before it looks at the
                # name, which may be that table's.
                if error.is_denied and self._has_table(record.path):
                    raise exists from error
                raise
            return _read_back(full, lambda: self.load_table(record.path), record, exists)

    def _has_table(self, path: Path) -> bool:
        """Return True if the server shows a table of this name to the caller."""
        try:
            self._load_table(path)
        except LanceNamespaceError as error:
            logger.debug("not shown after a refused create: %s", error)
            return False
        return True

    def _create(self, full: Path, record: TableRecord) -> None:
        if not self._config.is_databricks:
            self._client.change("POST", self._api_path("/tables"), mapping.table_body(full, record))
            return
        properties = dict(record.properties)
        location = mapping.stored_location(record.location or "")
        try:
            self._run(sql.create_table(full, location, properties))
        except ErrorReply as error:
            if not sql.is_key_refused(error):
                raise
            self._run(sql.create_table(full, location, sql.with_other_key(properties)))

    def alter_table(self, record: TableRecord) -> None:
        full = self._full(record.path)
        reason = self._capabilities.no_alter
        if reason:
            raise unsupported(f"Table '{display(full)}' cannot change: {reason}")
        found = self.load_table(record.path)
        if found.identity != record.identity:
            raise concurrent_modification(full)
        statements = list(_alter_statements(full, found, record))
        with translate_errors(f"change table '{display(full)}'", full):
            try:
                for statement in statements:
                    self._run(statement)
            except (ErrorReply, LanceNamespaceError):  # not LostReply, whose outcome is unknown
                if statement is not statements[0]:
                    self._restore(found)
                raise

    def _restore(self, record: TableRecord) -> None:
        """Undo the statements that succeeded before one was refused."""
        full = self._full(record.path)
        try:
            for statement in _alter_statements(full, self.load_table(record.path), record):
                self._run(statement)
        except (LostReply, ErrorReply, LanceNamespaceError) as error:
            logger.warning("table %s is changed in part: %s", display(full), error)

    def rename_table(self, record: TableRecord, new_path: Path) -> None:
        full, new = self._full(record.path), self._full(new_path)
        if full[:-1] != new[:-1]:
            reason = self._capabilities.no_rename_across
            raise unsupported(f"Table '{display(full)}' cannot move to '{display(new)}': {reason}")
        exists = table_already_exists(new)
        what = f"rename table '{display(full)}'"
        with lock_names(full, new), self._errors(what, full, RIGHTS_TO_RENAME_TABLE, exists):
            if self._config.is_databricks:
                self._run(sql.rename_table(full, new))
                return
            where = map(route, _COLLECTIONS, full)
            try:
                self._client.change(
                    "POST", self._api_path("/delta/v1", *where, "/rename"), {"new-name": new[-1]}
                )
            except ErrorReply as error:
                if error.lacks_route:
                    raise unsupported(
                        f"Table '{display(full)}' cannot be renamed: the server is older than "
                        "Unity Catalog 0.5 and has no call for it"
                    ) from error
                raise
            _read_back_renamed(full, new, lambda: self.load_table(new_path), record)

    def drop_table(self, record: TableRecord) -> None:
        full = self._full(record.path)
        what = f"drop table '{display(full)}'"
        with lock_names(full), self._errors(what, full, RIGHTS_TO_DROP_TABLE):
            self._client.change("DELETE", self._object_path(full), silent=True)

    def _run(self, statement: str) -> None:
        if self._warehouse is None:
            raise unsupported(NO_WAREHOUSE)
        self._warehouse.run(statement)

    # -- credentials -----------------------------------------------------------------------------

    def vend_credentials(self, record: TableRecord, *, write: bool) -> Mapping[str, str] | None:
        if not self._config.vends:
            return None
        full = self._full(record.path)
        call, body = mapping.credentials_request(record, write=write)
        try:
            with translate_errors(f"vend credentials for '{display(full)}'", full):
                options = mapping.storage_options(self._client.ask(self._api_path("/", call), body))
        except PermissionDeniedError as error:
            raise PermissionDeniedError(
                f"{error}. {rights_to_vend(record, write=write)}; to use credentials of "
                "your own, set credentials.vend=false"
            ) from error
        except LanceNamespaceError as error:
            cause = error.__cause__
            has_none = isinstance(cause, ErrorReply) and (
                cause.code == "FAILED_PRECONDITION" or cause.lacks_route
            )
            if not has_none or self._config.vend == "true":
                raise
            logger.warning("continuing without vended credentials: %s", error)
            return None
        return options


def _alter_statements(full: Path, found: TableRecord, wanted: TableRecord) -> Iterator[str]:
    """Yield the statements that change the table ``found`` to ``wanted``."""
    old, new = found.properties, wanted.properties
    changed = {key: value for key, value in new.items() if old.get(key) != value}
    if found.is_lance and wanted.is_lance:
        changed.pop(TABLE_TYPE, None)  # only its letter case may differ
    removed = sorted(set(old) - set(new))
    if wanted.location and wanted.location != found.location:
        yield sql.set_location(full, mapping.stored_location(wanted.location))
    if removed:
        yield sql.unset_properties(full, removed)
    if changed:
        yield sql.set_properties(full, changed)


# -- concurrent changes ----------------------------------------------------------------------------
# The open-source server checks whether a name is free before it uses it, not atomically: if two
# clients create a name or rename to it, both succeed, and the name is broken. If several clients
# rename or drop one table, several succeed. Within a process, changes of a name wait for each
# other. Changes by other processes are detected by reading back.

RecordT = TypeVar("RecordT", NamespaceRecord, TableRecord)

_LOCKS = [threading.Lock() for _ in range(64)]


def _after_fork_in_child() -> None:
    """Replace the locks: the child never releases one that another thread held at the fork."""
    _LOCKS[:] = [threading.Lock() for _ in _LOCKS]


os.register_at_fork(after_in_child=_after_fork_in_child)


@contextmanager
def lock_names(*names: Path) -> Iterator[None]:
    """Keep other threads of this process from changing any of these names."""
    with ExitStack() as held:
        # All threads use the same order, to prevent deadlocks.
        for number in sorted({zlib.crc32(display(each).encode()) % len(_LOCKS) for each in names}):
            held.enter_context(_LOCKS[number])
        yield


def _read_back(
    full: Path, load: Callable[[], RecordT], made: RecordT, exists: LanceNamespaceError
) -> RecordT:
    """Read back what was just created, and return it if this caller created it.

    Raises:
        LanceNamespaceError: ``exists``, if another client created it.
        InternalError: the name is broken.
        OutcomeUnknownError: it cannot be read, or does not exist.
    """
    try:
        try:
            found = load()
        except ServiceUnavailableError as error:
            if not _is_server_error(error):
                raise
            found = load()  # a broken name fails again
    except LanceNamespaceError as error:
        if _is_server_error(error):
            raise InternalError(
                f"'{display(full)}' was created, and the server now fails to read it: another "
                f"client created the same name at the same time, which breaks it. {error}"
            ) from error
        raise OutcomeUnknownError(f"'{display(full)}' may have been created: {error}") from error
    if found.properties.get(ENTRY_ID) != made.properties.get(ENTRY_ID):
        raise exists
    return found


def _read_back_renamed(
    full: Path, new: Path, load: Callable[[], TableRecord], renamed: TableRecord
) -> None:
    """Read back a table that the server has confirmed to be renamed.

    Under load, the server confirms renames that have no effect, such as the second of two.

    Raises:
        InternalError: the new name is broken.
        OutcomeUnknownError: the table does not have the new name, or that cannot be read.
    """
    done = f"rename '{display(full)}' to '{display(new)}'"
    try:
        found = load()
    except LanceNamespaceError as error:
        if _is_server_error(error):
            raise
        raise OutcomeUnknownError(
            f"The server confirmed to {done}, and it cannot be read back: {error}"
        ) from error
    if renamed.identity and found.identity != renamed.identity:
        raise OutcomeUnknownError(
            f"The server confirmed to {done}, and another table has that name"
        )


def _is_server_error(error: LanceNamespaceError) -> bool:
    cause = error.__cause__
    return isinstance(cause, ErrorReply) and cause.status == 500
