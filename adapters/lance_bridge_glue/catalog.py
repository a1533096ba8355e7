"""The catalog port on AWS Glue: names, records and errors, over one client of boto3."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from botocore.exceptions import ClientError
from lance_namespace.errors import InvalidTableStateError, PermissionDeniedError

from lance_bridge.catalog import (
    GUARD,
    Capabilities,
    Catalog,
    CatalogColumn,
    NamespaceRecord,
    Path,
    TableCredentials,
    TableRecord,
    select_tables,
)
from lance_bridge.config import CatalogConfig
from lance_bridge.credentials import EXPIRES_AT
from lance_bridge.errors import (
    concurrent_modification,
    display,
    invalid,
    namespace_already_exists,
    namespace_not_empty,
    namespace_not_found,
    table_already_exists,
    table_not_found,
)
from lance_bridge.storage_options import authentication, options_of_store

from . import mapping
from .client import Calls, Session, ask, name_of
from .config import GlueConfig
from .errors import (
    ABSENT,
    CHANGED,
    is_a,
    is_unknown_operation,
    map_errors,
    safe_cause,
    translate_errors,
)
from .mapping import capabilities

logger = logging.getLogger(__name__)

_PRESENT = ("AlreadyExistsException", "FederatedResourceAlreadyExistsException")
_BY_VERSION_ID = "version-id"  # UpdateTable with VersionId compares and sets
_REFUSED = ("AccessDeniedException", "FederationSourceException")
_KIND_SECONDS = 60.0
"""How long a database that is not one of S3 Tables is taken for that: it never becomes one, but
another database may get its name."""
_MOST_KINDS = 4096


class GlueCatalog(Catalog):
    """See :class:`~lance_bridge.catalog.Catalog` for what each method does and raises.

    Args:
        config: Checked properties.
        client: A client to use instead of one created from them; it is never closed here.
    """

    def __init__(self, config: GlueConfig, client: Any = None) -> None:
        self._config = config
        self._capabilities = capabilities()
        self._session: Session | None = None
        self._storage: StorageCredentials | None = None
        self._plain_until: dict[str, float] = {}
        if client is None:
            self._session = Session(config)
            self._storage = StorageCredentials(config, self._session)
            get_client = partial(self._session.client, "glue", config.endpoint)
            self._calls = Calls(get_client, config.catalog_id)
            self._region = self._session.region
        else:
            _refuse_unused(config)
            self._calls = Calls(lambda: client, config.catalog_id)
            self._region = client.meta.region_name

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    def describe_connection(self) -> str:
        keys = ("catalog_id", "endpoint", "profile_name", "access_key_id", "assume_role_arn")
        given = {key: getattr(self._config, key) for key in keys}
        return ", ".join([self._region, *(f"{k}={v}" for k, v in given.items() if v)])

    def describe_server(self) -> Mapping[str, str]:
        return {"server": "AWS Glue", "region": self._region}

    def close(self) -> None:
        if self._session is not None:
            self._session.close()

    # -- namespaces ------------------------------------------------------------------------------

    def list_namespaces(self, parent: Path) -> Iterable[str]:
        with translate_errors(f"list the namespaces of '{display(parent)}'"):
            databases = self._calls.read_all("get_databases", "DatabaseList")
            return sorted({name_of(each) for each in databases})

    def load_namespace(self, path: Path) -> NamespaceRecord:
        with translate_errors(f"read namespace '{display(path)}'"):
            database = self._get_database(path)
            location = database.get("LocationUri") or None
            target = database.get("TargetDatabase")
            if target and location is None:
                location = self._target_location(path, target)
            return mapping.namespace_from(path, database, location)

    def _get_database(self, path: Path) -> Mapping[str, Any]:
        with map_errors({ABSENT: namespace_not_found(path)}):
            found = self._calls.read("get_database", "Database", Name=path[-1])
        if len(self._plain_until) >= _MOST_KINDS:
            self._plain_until = {}
        is_plain = not mapping.is_s3_tables(found)
        self._plain_until[path[-1]] = time.monotonic() + _KIND_SECONDS if is_plain else 0.0
        return found

    def _target_location(self, path: Path, target: Mapping[str, Any]) -> str | None:
        """Return the location of the target of a resource link; None if it cannot be read.

        Glue itself follows links if the caller may read both ends.
        """
        if not mapping.is_in_region(target, self._region):
            return None
        try:
            found = self._calls.read("get_database", "Database", **mapping.target_arguments(target))
        except ClientError as error:
            if not is_a(error, ABSENT, *_REFUSED):
                raise
            logger.info("the target of link '%s' cannot be read: %s", display(path), error)
            return None
        return found.get("LocationUri") or None

    def create_namespace(self, record: NamespaceRecord) -> None:
        path = record.path
        with translate_errors(f"create namespace '{display(path)}'"):
            wanted = mapping.database_input(self._calls.shape("DatabaseInput"), record, {})
            with map_errors(dict.fromkeys(_PRESENT, namespace_already_exists(path))):
                self._calls.change("create_database", DatabaseInput=wanted)

    def alter_namespace(self, record: NamespaceRecord) -> None:
        path = record.path
        with translate_errors(f"change namespace '{display(path)}'"):
            database = self._get_database(path)
            target = database.get("TargetDatabase")
            if target:  # Glue would change the target
                raise invalid(
                    f"Namespace '{display(path)}' is a link to {mapping.name_of_target(target)}: "
                    "change the target instead"
                )
            shape = self._calls.shape("DatabaseInput")
            changed = mapping.database_input(shape, record, database)
            with map_errors({ABSENT: namespace_not_found(path)}):
                self._calls.change("update_database", Name=path[-1], DatabaseInput=changed)

    def drop_namespace(self, path: Path) -> None:
        self._refuse_functions(path)
        with (
            translate_errors(f"drop namespace '{display(path)}'"),
            map_errors({ABSENT: namespace_not_found(path)}),
        ):
            self._calls.change("delete_database", Name=path[-1])

    def require_droppable(self, path: Path) -> None:
        self._refuse_functions(path)

    def _refuse_functions(self, path: Path) -> None:
        """Raise NamespaceNotEmptyError if functions would be deleted with the database.

        The functions of a link belong to its target, and are not deleted.
        """
        if not self._config.drop_check_functions:
            return
        with translate_errors(f"list the functions of '{display(path)}'"):
            if self._get_database(path).get("TargetDatabase"):
                return
            what = {"DatabaseName": path[-1], "Pattern": "*"}
            try:
                for function in self._calls.read_all(
                    "get_user_defined_functions", "UserDefinedFunctions", **what
                ):
                    name = function.get("FunctionName")
                    raise namespace_not_empty(path, f"It contains function {name}")
            except ClientError as error:
                if is_unknown_operation(error):
                    logger.info("the server has no functions to look for in '%s'", display(path))
                elif not is_a(error, ABSENT):  # from a federated database without its source
                    raise

    # -- tables ----------------------------------------------------------------------------------

    def scan_tables(
        self, namespace: Path, *, lance_only: bool = False, after: str | None = None
    ) -> Iterable[TableRecord]:
        # The order of pages is undocumented, so all of them are read.
        return select_tables(self._records(namespace), lance_only=lance_only, after=after)

    def _records(self, namespace: Path) -> Iterator[TableRecord]:
        with translate_errors(f"list the tables of '{display(namespace)}'"):
            link: Mapping[str, Any] | None = None
            for number, table in enumerate(self._get_tables(namespace)):
                name = name_of(table)
                if number == 0:  # the same for all entries
                    link = self._link_to(namespace, table)
                yield mapping.record_from((*namespace, name), table, self._region, link)

    def _get_tables(self, namespace: Path) -> Iterator[Mapping[str, Any]]:
        # Pages are read one by one: `Expression`, which could split a listing, is only partly a
        # regular expression, so that entries could be missed.
        try:
            yield from self._calls.read_all("get_tables", "TableList", DatabaseName=namespace[-1])
        except ClientError as error:
            if not is_a(error, ABSENT):
                raise
            # The database, the target of a link, or a federated source does not exist.
            database = self._get_database(namespace)
            if not (database.get("TargetDatabase") or database.get("FederatedDatabase")):
                raise namespace_not_found(namespace) from error
            logger.info("the target of '%s' does not exist: %s", display(namespace), error)

    def load_table(self, path: Path) -> TableRecord:
        with translate_errors(f"read table '{display(path)}'"):
            table = self._get_table(path)
            if table.get("TargetTable") and mapping.location_of(table) is None:
                table = self._follow_link(path, table)
            link = self._link_to(path[:-1], table)
            return mapping.record_from(path, table, self._region, link)

    def load_columns(self, path: Path) -> Iterable[CatalogColumn]:
        with translate_errors(f"read the columns of table '{display(path)}'"):
            table = self._get_table(path)
            return mapping.columns_from(
                self._follow_link(path, table) if table.get("TargetTable") else table
            )

    def _link_to(self, namespace: Path, table: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return the database if it is a link to the database of the entry, else None.

        An entry names its own database, so a call is needed only if that is another one. A database
        of the same name in another catalog is recognised only with `catalog_id`.
        """
        database, catalog = namespace[-1].lower(), self._config.catalog_id
        is_here = (table.get("DatabaseName") or database).lower() == database
        if is_here and (catalog is None or (table.get("CatalogId") or catalog) == catalog):
            return None
        try:
            found = self._get_database(namespace)
        except ClientError as error:
            if not is_a(error, *_REFUSED):
                raise
            logger.info("the target of link '%s' cannot be read: %s", display(namespace), error)
            return {"TargetDatabase": table}
        return found if found.get("TargetDatabase") else None

    def _get_table(self, path: Path) -> Mapping[str, Any]:
        with map_errors({ABSENT: table_not_found(path)}):
            return self._calls.read("get_table", "Table", DatabaseName=path[-2], Name=path[-1])

    def _follow_link(self, path: Path, link: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the target of a resource link, or the link itself if the target does not exist."""
        target = link["TargetTable"]
        if not mapping.is_in_region(target, self._region):
            return link
        try:
            arguments = mapping.target_arguments(target)
            found = self._calls.read(
                "get_table", "Table", DatabaseName=target.get("DatabaseName", ""), **arguments
            )
        except ClientError as error:
            if not is_a(error, ABSENT):
                raise
            logger.info("the target of link '%s' does not exist: %s", display(path), error)
            return link
        own = {
            k: link[k] for k in ("CatalogId", "DatabaseName", "Name", "TargetTable") if k in link
        }
        return {**found, **own}

    def create_table(self, record: TableRecord) -> TableRecord:
        path = record.path
        with translate_errors(f"create table '{display(path)}' at {record.location}"):
            self._refuse_s3_tables(path)
            shape = self._calls.shape("TableInput")
            self._create(path, mapping.table_input(shape, record))
        return record

    def _refuse_s3_tables(self, path: Path) -> None:
        """Raise InvalidInputError in a database of S3 Tables, or NamespaceNotFoundError.

        Costs no call if the database was read a moment ago, as it is by most operations.
        """
        if self._plain_until.get(path[-2], 0.0) > time.monotonic():
            return
        if mapping.is_s3_tables(self._get_database(path[:-1])):
            raise invalid(
                f"Table '{display(path)}' cannot be created: its database is one of S3 Tables, "
                "which sets the location and format of tables itself"
            )

    def _create(self, path: Path, table: dict[str, Any]) -> None:
        taken = dict.fromkeys(_PRESENT, table_already_exists(path))
        with map_errors({**taken, ABSENT: namespace_not_found(path[:-1])}):
            self._calls.change("create_table", DatabaseName=path[-2], TableInput=table)

    def alter_table(self, record: TableRecord) -> None:
        self._alter(record, None)

    def load_ownership(self, path: Path) -> Mapping[str, str]:
        with translate_errors(f"read table '{display(path)}'"):
            return mapping.ownership_of(self._get_table(path))

    def alter_ownership(self, record: TableRecord, ownership: Mapping[str, str]) -> None:
        self._alter(record, ownership)

    def _alter(self, record: TableRecord, ownership: Mapping[str, str] | None) -> None:
        path = record.path
        with translate_errors(f"change table '{display(path)}'"):
            table = self._load_unchanged(record)
            _require_guard(record, table)
            changed = mapping.updated_input(self._calls.shape("TableInput"), table, record)
            if ownership is not None:
                changed = mapping.with_ownership(changed, ownership)
            version = {"VersionId": record.revision} if record.revision is not None else {}
            absent, conflict = table_not_found(path), concurrent_modification(path)
            with map_errors({ABSENT: absent, CHANGED: conflict}):
                # Without SkipArchive each change adds a version, and their number is limited.
                self._calls.change(
                    "update_table",
                    DatabaseName=path[-2],
                    TableInput=changed,
                    SkipArchive=True,
                    **version,
                )

    def commit_guard(self, record: TableRecord) -> str:
        with translate_errors(f"read table '{display(record.path)}'"):
            self._calls.require_comparison(record.path, self._load_unchanged(record))
        return _BY_VERSION_ID

    def _load_unchanged(self, record: TableRecord) -> Mapping[str, Any]:
        """Return the entry that a record was loaded from.

        Raises:
            TableNotFoundError
            ConcurrentModificationError
            InvalidInputError: it is a link: Glue would change its target.
        """
        table = self._get_table(record.path)
        if table.get("TargetTable"):
            target = mapping.name_of_target(table["TargetTable"])
            raise invalid(
                f"Table '{display(record.path)}' is a link to {target}: change that table, or "
                "create another link"
            )
        if record.revision is not None and table.get("VersionId") != record.revision:
            raise concurrent_modification(record.path)
        # The version numbers of a recreated table start again.
        if record.identity is not None and mapping.identity_of(table) != record.identity:
            raise concurrent_modification(record.path)
        return table

    def copy_table(self, record: TableRecord, copy: TableRecord) -> None:
        """Copy all that CreateTable accepts; see :class:`~lance_bridge.catalog.Catalog`.

        It does not copy what Glue and Lake Formation store outside of the entry: older versions,
        partitions, column statistics, tags and permissions.
        """
        with translate_errors(f"copy table '{display(record.path)}' to '{display(copy.path)}'"):
            table = self._load_unchanged(record)
            if copy.path[:-1] != record.path[:-1]:
                self._refuse_s3_tables(copy.path)
            shape = self._calls.shape("TableInput")
            self._create(copy.path, mapping.updated_input(shape, table, copy))

    def drop_table(self, record: TableRecord) -> None:
        path = record.path
        with (
            translate_errors(f"drop table '{display(path)}'"),
            map_errors({ABSENT: table_not_found(path)}),
        ):
            self._calls.change("delete_table", DatabaseName=path[-2], Name=path[-1])

    def partition_locations(self, record: TableRecord) -> Iterable[str]:
        """Return the locations of partitions, or none for a link: 1 call for each 100."""
        if record.link_to:
            return
        database, table = record.path
        with translate_errors(f"read the partitions of '{display(record.path)}'"):
            try:
                for partition in self._calls.read_all(
                    "get_partitions",
                    "Partitions",
                    DatabaseName=database,
                    TableName=table,
                    ExcludeColumnSchema=True,
                ):
                    yield from mapping.partition_locations(partition)
            except ClientError as error:
                if not is_a(error, ABSENT):
                    raise

    # -- storage ---------------------------------------------------------------------------------

    def vend_credentials(self, record: TableRecord, *, write: bool) -> Mapping[str, str] | None:
        """Vend credentials for S3 only, see :class:`StorageCredentials`."""
        return self._storage.vend(record, write=write) if self._storage is not None else None


def _require_guard(record: TableRecord, table: Mapping[str, Any]) -> None:
    """Raise InvalidTableStateError if an entry has another catalog's guard."""
    for guard in (record.properties.get(GUARD), (table.get("Parameters") or {}).get(GUARD)):
        if guard is not None and (guard != _BY_VERSION_ID or record.revision is None):
            raise InvalidTableStateError(
                f"Table '{display(record.path)}' is guarded by {guard!r}, which Glue does not "
                "know: deregister it, and register it again"
            )


def _refuse_unused(config: GlueConfig) -> None:
    """Raise InvalidInputError for properties that have no effect with a given client."""
    used = {*CatalogConfig.model_fields, "catalog_id", "drop_check_functions"}
    for name in sorted(config.model_fields_set - used):
        key = GlueConfig.model_fields[name].alias or name
        raise invalid(f"impl=glue: property '{key}' has no effect with a client: leave it out")


# -- storage credentials ---------------------------------------------------------------------------

_SCHEMES = ("s3", "s3a", "s3n")
_READ = ("SELECT",)
_WRITE = ("SELECT", "INSERT", "DELETE")


class StorageCredentials:
    """Vends credentials for storage. Options in `storage.*` take precedence."""

    def __init__(self, config: GlueConfig, session: Session) -> None:
        self._config = config
        self._session = session
        given = options_of_store(config.storage, "aws")
        self._has_credentials = bool(authentication(given))
        names_region = bool(given.keys() & {"region", "default_region"})
        self._region = {} if names_region else {"aws_region": session.region}
        self._names_endpoint = bool(given.keys() & {"endpoint", "endpoint_url"})

    def vend(self, record: TableRecord, *, write: bool) -> dict[str, str] | None:
        """Return options for a table's location, or None.

        Without credentials in the properties, Lance looks them up itself, in the same places as
        AWS's tools; it gets the place of the buckets if they are not where Lance looks.
        """
        scheme = (record.location or "").partition(":")[0].lower()
        if scheme not in _SCHEMES:
            return None
        if self._has_credentials:
            return self._place() or None
        what = f"get credentials for the files of table '{display(record.path)}'"
        with translate_errors(what):
            if self._config.lake_formation:
                vended = self._from_lake_formation(record, write=write)
                if vended is not None:
                    return vended
            if not self._config.names_credentials:
                return self._place() or None
            frozen, expires = self._session.storage_credentials()
            return self._options(frozen.access_key, frozen.secret_key, frozen.token, expires)

    def _from_lake_formation(self, record: TableRecord, *, write: bool) -> dict[str, str] | None:
        """Return Lake Formation's credentials for the table; None if the table does not exist.

        Source: GetTemporaryGlueTableCredentials.
        """
        client = self._session.client("lakeformation", self._config.lake_formation_endpoint)
        try:
            response = ask(
                client,
                "get_temporary_glue_table_credentials",
                ("AccessKeyId", "SecretAccessKey", "SessionToken", "Expiration"),
                TableArn=self._arn(record),
                Permissions=list(_WRITE if write else _READ),
                DurationSeconds=self._config.lake_formation_duration,
                SupportedPermissionTypes=["COLUMN_PERMISSION"],
            )
        except ClientError as error:
            if not is_a(error, ABSENT):
                raise
            if record.identity is None:
                return None  # the table is about to be created
            raise PermissionDeniedError(
                f"There are no credentials for the files of table '{display(record.path)}': Lake "
                "Formation does not know the table. It may have been dropped concurrently"
            ) from safe_cause(error)
        return TableCredentials(
            self._options(
                response["AccessKeyId"],
                response["SecretAccessKey"],
                response["SessionToken"],
                int(response["Expiration"].timestamp() * 1000),
            )
        )

    def _arn(self, record: TableRecord) -> str:
        account = f"{self._session.region}:{self._config.catalog_id}"
        table = "/".join(record.link_path or record.path)
        return f"arn:{self._session.partition()}:glue:{account}:table/{table}"

    def _options(
        self, key: str, secret: str, token: str | None, expires: int | None
    ) -> dict[str, str]:
        options = {"aws_access_key_id": key, "aws_secret_access_key": secret}
        if token:
            options["aws_session_token"] = token
        options |= {**self._region, **self._place()}
        if expires is not None:
            options[EXPIRES_AT] = str(expires)
        return options

    def _place(self) -> dict[str, str]:
        """Return where the buckets are, if Lance would look elsewhere."""
        endpoint = {} if self._names_endpoint else self._session.storage_endpoint()
        return {**endpoint, **self._region} if endpoint else {}
