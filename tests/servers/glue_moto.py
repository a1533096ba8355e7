"""moto's Glue held to what AWS documents.

moto's own: everything that is not named below, among it how entries are stored, what Expression of
GetTables means (a regular expression, where ``*`` is a wildcard too), that deleting a database
deletes what is in it, and that nothing is ever slow, throttled or refused.

Ours, after AWS Glue's API reference, its service model and Lake Formation's page on resource links:

- every member of a request is checked against the service model (lengths, ranges, patterns);
- names are folded to lower case on storage and look-up;
- GetTables, GetDatabases and GetUserDefinedFunctions give sorted pages of at most 100, and tokens;
- UpdateTable refuses a stale VersionId, and archives no version under SkipArchive;
- one request at a time touches the catalog, so that creating and updating are atomic;
- each CatalogId has a catalog of its own;
- resource links to databases and tables are followed; those without a target show themselves only;
- a database keeps FederatedDatabase; user-defined functions can be made and found;
- an entry's times are whole seconds, and errors look as AWS's do.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import moto.glue.urls
from moto.core.base_backend import BackendDict
from moto.core.exceptions import JsonRESTError
from moto.core.responses import ActionResult, EmptyResult
from moto.core.utils import camelcase_to_underscores, utcnow
from moto.glue.exceptions import AlreadyExistsException, EntityNotFoundException
from moto.glue.models import FakeDatabase, FakeTable, GlueBackend
from moto.glue.responses import GlueResponse

from servers.glue_rules import Parameters, folded, operation_shape, page_of, violations

Answer = tuple[int, dict[str, Any], Any]

_OWN_TABLE_KEYS = ("TableType", "Parameters", "StorageDescriptor", "PartitionKeys")
_OWN_DATABASE_KEYS = ("Description", "LocationUri", "Parameters")


class Backend(GlueBackend):
    """One catalog in one region."""

    def __init__(self, region_name: str, account_id: str) -> None:
        super().__init__(region_name, account_id)
        self.functions: dict[str, dict[str, Parameters]] = {}


@dataclass
class Controls:
    """What tests may set."""

    page_size: int = 100
    """Most entries on a page."""


CONTROLS = Controls()


@dataclass
class Place:
    """Where a database name leads."""

    backend: Backend
    database: FakeDatabase
    linked: bool


_BACKENDS: BackendDict[Backend] = BackendDict(Backend, "glue")
_ONE_AT_A_TIME = threading.RLock()


class GlueAsDocumented(GlueResponse):
    """Glue's operations, held to AWS's documentation."""

    @property
    def glue_backend(self) -> Backend:
        return self._backend(self.parameters)

    @property
    def parameters(self) -> Parameters:
        if "decoded" not in self.__dict__:
            self.__dict__["decoded"] = folded(json.loads(self.body), self._get_action())
        decoded: Parameters = self.__dict__["decoded"]
        return decoded

    def call_action(self) -> Answer:
        with _ONE_AT_A_TIME:
            action = self._get_action()
            if not hasattr(self, camelcase_to_underscores(action)):
                return _error(501, "NotImplemented", f"{action} is not served by the tests' Glue")
            broken = list(violations(json.loads(self.body), operation_shape(action), ""))
            if broken:
                text = f"{len(broken)} validation error detected: {'; '.join(broken)}"
                return _error(400, "ValidationException", text)
            status, headers, body = super().call_action()
            if int(status) < 400:
                return int(status), headers, body
            said = json.loads(body)
            text = said.get("message", said.get("Message", ""))
            return _error(int(status), said["__type"].rpartition("#")[2], text)

    # -- databases -------------------------------------------------------------------------------

    def create_database(self) -> ActionResult:
        super().create_database()
        name = self.parameters["DatabaseInput"]["Name"]
        _to_seconds(self.glue_backend.databases[name])
        return EmptyResult()

    def get_database(self) -> ActionResult:
        database = self.glue_backend.get_database(self.parameters["Name"])
        return ActionResult({"Database": self._shown_database(database)})

    def get_databases(self) -> ActionResult:
        page, rest = self._page(self.glue_backend.get_databases(), lambda one: one.name)
        return ActionResult({"DatabaseList": [self._shown_database(one) for one in page], **rest})

    def update_database(self) -> ActionResult:
        database = self._place("Name").database
        database.input = {**self.parameters["DatabaseInput"], "Name": database.name}
        return EmptyResult()

    def delete_database(self) -> EmptyResult:
        super().delete_database()
        self.glue_backend.functions.pop(self.parameters["Name"], None)
        return EmptyResult()

    # -- tables ----------------------------------------------------------------------------------

    def create_table(self) -> ActionResult:
        wanted = self.parameters["TableInput"]
        place = self._place()
        if wanted.get("TargetTable") and place.linked:
            raise _invalid("A table link cannot be made through a database link.")
        database = place.database
        if wanted["Name"] in database.tables:
            raise AlreadyExistsException("Table")
        table = FakeTable(database.name, wanted["Name"], wanted, place.backend.account_id)
        _to_seconds(table)
        table.updated_time = table.created_time
        database.tables[table.name] = table
        return EmptyResult()

    def get_table(self) -> ActionResult:
        place = self._place()
        table = _table(place.database, self.parameters["Name"])
        return ActionResult({"Table": self._shown_table(table, place)})

    def get_tables(self) -> ActionResult:
        place = self._place()
        found = place.backend.get_tables(place.database.name, self.parameters.get("Expression"))
        page, rest = self._page(found, lambda one: one.name)
        shown = [self._shown_table(table, place) for table in page]
        return ActionResult({"TableList": shown, **rest})

    def update_table(self) -> ActionResult:
        wanted = self.parameters["TableInput"]
        place = self._place()
        table = _table(place.database, wanted["Name"])
        target = self._target_table(table)
        if place.linked and target is not None:
            raise _invalid("Both the database and the table are links.")
        table = target or table
        current = str(table._current_version)
        if self.parameters.get("VersionId", current) != current:
            raise JsonRESTError(
                "ConcurrentModificationException",
                "Update table failed due to concurrent modifications.",
            )
        table.update({**wanted, "Name": table.name})
        table.updated_time = utcnow().replace(microsecond=0)
        if self.parameters.get("SkipArchive"):
            table.delete_version(current)
        return EmptyResult()

    def delete_table(self) -> ActionResult:
        database = self._place().database
        del database.tables[_table(database, self.parameters["Name"]).name]
        return EmptyResult()

    # -- functions -------------------------------------------------------------------------------

    def create_user_defined_function(self) -> ActionResult:
        place, wanted = self._place(), self.parameters["FunctionInput"]
        name = wanted["FunctionName"].lower()
        functions = place.backend.functions.setdefault(place.database.name, {})
        if name in functions:
            raise AlreadyExistsException("Function")
        functions[name] = {
            **wanted,
            "FunctionName": name,
            "DatabaseName": place.database.name,
            "CatalogId": place.backend.account_id,
        }
        return EmptyResult()

    def get_user_defined_functions(self) -> ActionResult:
        functions = list(self.glue_backend.functions.values())
        if self.parameters.get("DatabaseName"):
            place = self._place()
            functions = [place.backend.functions.get(place.database.name, {})]
        # As in Expression of GetTables, * alone is a wildcard.
        pattern = re.compile(self.parameters["Pattern"].replace(".*", "*").replace("*", ".*"))
        found = [f for some in functions for name, f in some.items() if pattern.fullmatch(name)]
        page, rest = self._page(found, lambda one: f"{one['DatabaseName']} {one['FunctionName']}")
        return ActionResult({"UserDefinedFunctions": page, **rest})

    # -- pages and links -------------------------------------------------------------------------

    def _page(self, items: list[Any], name: Callable[[Any], str]) -> tuple[list[Any], Parameters]:
        return page_of(sorted(items, key=name), name, self.parameters, CONTROLS.page_size)

    def _backend(self, where: Parameters) -> Backend:
        catalog = where.get("CatalogId") or self.current_account
        return _BACKENDS[catalog][where.get("Region") or self.region]

    def _place(self, key: str = "DatabaseName") -> Place:
        """Return the database that the request names, or the one that it is a link to."""
        backend = self.glue_backend
        database = backend.get_database(self.parameters[key])
        target = database.input.get("TargetDatabase")
        if not target:
            return Place(backend, database, linked=False)
        backend = self._backend(target)
        return Place(backend, backend.get_database(target["DatabaseName"].lower()), linked=True)

    def _target_table(self, table: FakeTable) -> FakeTable | None:
        """Return what a table is a link to; None if it is none, or its target does not exist."""
        target = table.as_dict().get("TargetTable")
        if not target:
            return None
        database = self._backend(target).databases.get(target["DatabaseName"].lower())
        return database.tables.get(target["Name"].lower()) if database else None

    def _shown_database(self, database: FakeDatabase) -> Parameters:
        shown = {**database.as_dict(), "FederatedDatabase": database.input.get("FederatedDatabase")}
        target = database.input.get("TargetDatabase")
        found = target and self._backend(target).databases.get(target["DatabaseName"].lower())
        if found:
            shown.update({key: found.as_dict()[key] for key in _OWN_DATABASE_KEYS})
        return shown

    def _shown_table(self, table: FakeTable, place: Place) -> Parameters:
        """Return an entry; a link to a table in a database linked to is not followed."""
        target = None if place.linked else self._target_table(table)
        if target is None:
            return table.as_dict()
        inherited = {k: v for k, v in target.as_dict().items() if k in _OWN_TABLE_KEYS}
        return {**table.as_dict(), **inherited}


def _table(database: FakeDatabase, name: str) -> FakeTable:
    if name not in database.tables:
        raise EntityNotFoundException(f"Table {name} not found.")
    return database.tables[name]


def _invalid(message: str) -> JsonRESTError:
    return JsonRESTError("InvalidInputException", message)


def _to_seconds(entry: FakeDatabase | FakeTable) -> None:
    entry.created_time = entry.created_time.replace(microsecond=0)


def _error(status: int, code: str, message: str) -> Answer:
    headers = {"Content-Type": "application/x-amz-json-1.1", "status": str(status)}
    return status, headers, json.dumps({"__type": code, "Message": message})


def has_table(arn: str) -> bool:
    """Return whether there is a table of this ARN."""
    region, catalog, resource = arn.split(":")[3:6]
    database, name = resource.removeprefix("table/").split("/")
    with _ONE_AT_A_TIME:
        databases = _BACKENDS[catalog][region].databases
        return database in databases and name in databases[database].tables


def install() -> None:
    """Let moto's server answer by this module; before its applications are made."""
    moto.glue.urls.url_paths = {"{0}/$": GlueAsDocumented.dispatch}
