"""The server of `servers.glue_server`: moto's Glue, S3, STS and IAM, in a process of its own.

moto's own: everything that is not named below, among it how entries are stored, what Expression of
GetTables means (a regular expression, where ``*`` is a wildcard too), that deleting a database
deletes what is in it, and that nothing is ever slow, throttled or refused.

Ours in Glue, after its API reference, its service model and Lake Formation's page on links:

- every member of a request is checked against the service model (lengths, ranges, patterns);
- names are folded to lower case on storage and look-up;
- GetTables, GetDatabases and GetUserDefinedFunctions give sorted pages of at most 100, and tokens;
- UpdateTable refuses a stale VersionId, and archives no version under SkipArchive;
- one request at a time touches the catalog, so that creating and updating are atomic;
- each CatalogId has a catalog of its own;
- resource links to databases and tables are followed; those without a target show themselves only;
- a database keeps FederatedDatabase; user-defined functions can be made and found;
- an entry's times are whole seconds, and errors look as AWS's do.

Ours beside Glue:

- a session of AssumeRole may last as long as a test says, and may be ended;
- Lake Formation, which moto does not have, gives temporary credentials for a table that is there,
  to anyone who asks; they are good for everything;
- requests are refused, where a test asks for it, unless they are signed in the name of a key that
  is known and has not expired. The signature itself is not checked.
"""

from __future__ import annotations

import base64
import binascii
import functools
import json
import logging
import os
import re
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from http.client import responses
from typing import Any

import moto.core.responses
import moto.glue.urls
from botocore.session import get_session
from moto.core.base_backend import BackendDict
from moto.core.exceptions import JsonRESTError
from moto.core.responses import ActionResult, EmptyResult
from moto.core.utils import camelcase_to_underscores, method_names_from_class, utcnow
from moto.glue.exceptions import AlreadyExistsException, EntityNotFoundException
from moto.glue.models import FakeDatabase, FakeTable, GlueBackend
from moto.glue.responses import GlueResponse
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from moto.sts.models import AssumedRole, STSBackend
from werkzeug.serving import make_server

# -- Glue ------------------------------------------------------------------------------------------


Parameters = dict[str, Any]
_PAGE = 100
_ABOVE_BMP = r"\uD800\uDC00-\uDBFF\uDFFF"
"""How the model says U+10000 to U+10FFFF; Java reads it so, and Python does not."""
Answer = tuple[int, dict[str, Any], Any]
_OWN_TABLE_KEYS = ("TableType", "Parameters", "StorageDescriptor", "PartitionKeys")
_OWN_DATABASE_KEYS = ("Description", "LocationUri", "Parameters")


@cache
def operation_shape(operation: str) -> Any:
    """Return what the service model says of an operation's request."""
    return get_session().get_service_model("glue").operation_model(operation).input_shape


@cache
def _pattern(text: str) -> re.Pattern[str] | None:
    if r"\p" in text:
        return None
    return re.compile(text.replace(_ABOVE_BMP, r"\U00010000-\U0010FFFF"))


def violations(value: Any, shape: Any, where: str) -> Iterator[str]:
    """Yield each constraint of the model that a value breaks."""
    kind = shape.type_name
    if kind == "structure":
        for name, member in shape.members.items():
            if value.get(name) is not None:
                inner = name[0].lower() + name[1:]
                yield from violations(value[name], member, f"{where}.{inner}".lstrip("."))
    elif kind == "list":
        for number, item in enumerate(value, 1):
            yield from violations(item, shape.member, f"{where}.{number}.member")
    elif kind == "map":
        for key, item in value.items():
            broken = (*violations(key, shape.key, ""), *violations(item, shape.value, ""))
            if broken:
                yield f"Value at '{where}' failed to satisfy constraint: Map entry {broken[0]}"
    elif kind in ("string", "integer"):
        for broken_rule in _broken_rules(value, shape.metadata):
            yield f"Value '{str(value)[:60]}' at '{where}' {broken_rule}"


def _broken_rules(value: Any, rules: dict[str, Any]) -> Iterator[str]:
    size = len(value) if isinstance(value, str) else value
    noun = "length" if isinstance(value, str) else "value"
    must = f"failed to satisfy constraint: Member must have {noun}"
    if size < rules.get("min", size):
        yield f"{must} greater than or equal to {rules['min']}"
    if size > rules.get("max", size):
        yield f"{must} less than or equal to {rules['max']}"
    pattern = _pattern(rules.get("pattern", r"\p"))
    if pattern is not None and not pattern.fullmatch(value):
        yield f"failed to satisfy constraint: Member must satisfy {rules['pattern']}"


def folded(parameters: Parameters, action: str) -> Parameters:
    """Return a request with its names in lower case."""
    about_names = action.endswith(("Database", "Table"))
    result = {
        key: value.lower()
        if key in ("DatabaseName", "TableName") or (key == "Name" and about_names)
        else value
        for key, value in parameters.items()
    }
    for key in ("DatabaseInput", "TableInput"):
        if key in result:
            result[key] = {**result[key], "Name": result[key]["Name"].lower()}
    return result


def page_of(
    items: list[Any], name: Callable[[Any], str], parameters: Parameters, most: int = _PAGE
) -> tuple[list[Any], Parameters]:
    """Return the page after the request's token, and the next token where more follows.

    Raises:
        JsonRESTError: (InvalidInputException) the token is not one of ours.
    """
    token = parameters.get("NextToken")
    if token:
        after = _after(token)
        items = [item for item in items if name(item) > after]
    size = min(parameters.get("MaxResults", _PAGE), most)
    page = items[:size]
    if len(items) <= size:
        return page, {}
    return page, {"NextToken": base64.b64encode(name(page[-1]).encode()).decode()}


def _after(token: str) -> str:
    try:
        return base64.b64decode(token, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        raise JsonRESTError("InvalidInputException", "NextToken is not valid.") from None


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


# -- sessions, keys and Lake Formation; the server -------------------------------------------------


_CREDENTIAL = re.compile(r"Credential=([^/]+)/[^/]*/[^/]*/([^/]+)/")
_EXPIRED = ("Expired", "The security token included in the request is expired")
_UNKNOWN = ("Unknown", "The security token included in the request is invalid.")
_CODES = {
    "glue": {"Expired": "ExpiredTokenException", "Unknown": "UnrecognizedClientException"},
    "s3": {"Expired": "ExpiredToken", "Unknown": "InvalidAccessKeyId"},
    "sts": {"Expired": "ExpiredToken", "Unknown": "InvalidClientTokenId"},
}
Environ = dict[str, Any]
StartResponse = Callable[[str, list[tuple[str, str]]], object]


@dataclass
class Session:
    """What AssumeRole or Lake Formation gave."""

    token: str
    expires: float
    """When it says that it ends, in seconds since 1970."""
    ended: bool = False


@dataclass
class Keys:
    """Who may do anything; all may, while no key is named."""

    named: set[str] = field(default_factory=set)
    sessions: dict[str, Session] = field(default_factory=dict)
    session_seconds: float | None = None

    def assumed(self, role: AssumedRole) -> None:
        """Remember a session, and let it end as a test has said."""
        if self.session_seconds is not None:
            role.expiration = utcnow() + timedelta(seconds=self.session_seconds)
        seconds = (role.expiration - utcnow()).total_seconds()
        self.sessions[role.access_key_id] = Session(role.session_token, time.time() + seconds)

    def made(self, seconds: float) -> tuple[str, Session]:
        """Make a session that lasts so long, or as a test has said; return it with its key."""
        lasts = seconds if self.session_seconds is None else self.session_seconds
        key = f"ASIA{secrets.token_hex(8).upper()}"
        session = Session(secrets.token_hex(32), time.time() + lasts)
        self.sessions[key] = session
        return key, session

    def objection(self, key: str, token: str) -> tuple[str, str] | None:
        """Return what is wrong with a key: kind and message."""
        if not self.named or key in self.named:
            return None
        session = self.sessions.get(key)
        if session is None or session.token != token:
            return _UNKNOWN
        return _EXPIRED if session.ended or session.expires <= time.time() else None


class Dispatcher(DomainDispatcherApplication):
    """moto's, which lists its own directory for each request; here, for each host once."""

    get_backend_for_host = functools.cache(DomainDispatcherApplication.get_backend_for_host)


class Application:
    """moto's application behind a check of the key, and ``PUT /controls`` for tests."""

    def __init__(self) -> None:
        self.keys = Keys()
        self._moto: Any = Dispatcher(create_backend_app)

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        if environ["PATH_INFO"] == "/controls":
            self._control(**_body(environ))
            start_response("204 NO CONTENT", [])
            return []
        found = _CREDENTIAL.search(environ.get("HTTP_AUTHORIZATION", ""))
        key, service = found.groups() if found else ("", "")
        token = environ.get("HTTP_X_AMZ_SECURITY_TOKEN", "")
        objection = self.keys.objection(key, token)
        if objection is None or environ["PATH_INFO"].startswith("/moto-api"):
            if environ["PATH_INFO"] == "/GetTemporaryGlueTableCredentials":
                return self._vend(_body(environ), start_response)
            answer: Iterable[bytes] = self._moto(environ, start_response)
            return answer
        # Unread, the body would be taken for the next request.
        environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        return _refusal(service, *objection, start_response)

    def _vend(self, wanted: Any, start_response: StartResponse) -> Iterable[bytes]:
        if not has_table(wanted["TableArn"]):
            return _json(
                400, _error_body("EntityNotFoundException", "Table not found"), start_response
            )
        key, session = self.keys.made(wanted.get("DurationSeconds", 3600.0))
        vended = {
            "AccessKeyId": key,
            "SecretAccessKey": secrets.token_hex(20),
            "SessionToken": session.token,
            "Expiration": session.expires,
        }
        return _json(200, vended, start_response)

    def _control(
        self,
        page_size: int = 100,
        session_seconds: float | None = None,
        require_keys: Iterable[str] = (),
        end_sessions: bool = False,
    ) -> None:
        """Set what tests may; what is left out is as at the start.

        Args:
            page_size: Most entries on a page of Glue's.
            session_seconds: After how long sessions from now on end; None: as callers ask.
            require_keys: Users who may do anything, besides sessions; none: all may.
            end_sessions: All sessions end now, whatever their expiration says.
        """
        CONTROLS.page_size = page_size
        self.keys.session_seconds = session_seconds
        self.keys.named = set(require_keys)
        if end_sessions:
            for session in self.keys.sessions.values():
                session.ended = True


def _refusal(
    service: str, kind: str, message: str, start_response: StartResponse
) -> Iterable[bytes]:
    code = _CODES.get(service, _CODES["glue"])[kind]
    if service not in ("s3", "sts"):
        return _json(400, _error_body(code, message), start_response)
    body = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>"
    if service == "sts":
        body = f"<ErrorResponse>{body}</ErrorResponse>"
    return _reply(403, "application/xml", body, start_response)


def _error_body(code: str, message: str) -> dict[str, str]:
    return {"__type": code, "Message": message}


def _json(status: int, content: Any, start_response: StartResponse) -> Iterable[bytes]:
    return _reply(status, "application/x-amz-json-1.1", json.dumps(content), start_response)


def _reply(
    status: int, content_type: str, body: str, start_response: StartResponse
) -> Iterable[bytes]:
    headers = [("Content-Type", content_type), ("Content-Length", str(len(body)))]
    start_response(f"{status} {responses[status]}", headers)
    return [body.encode()]


def _body(environ: Environ) -> Any:
    return json.loads(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])))


def _watch_sessions(keys: Keys) -> None:
    assume_role = STSBackend.assume_role

    def watched(self: STSBackend, *args: Any, **kwargs: Any) -> AssumedRole:
        role = assume_role(self, *args, **kwargs)
        keys.assumed(role)
        return role

    STSBackend.assume_role = watched  # type: ignore[method-assign]  # moto has no hook for it


def main(port_file: str) -> None:
    """Serve on a free port, and write its number to the file."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    install()
    names = functools.cache(method_names_from_class)  # and not for each request again
    moto.core.responses.method_names_from_class = names  # type: ignore[attr-defined]  # no hook
    application = Application()
    _watch_sessions(application.keys)
    server = make_server("127.0.0.1", 0, application, threaded=True)
    with open(f"{port_file}.part", "w") as file:
        file.write(str(server.server_port))
    os.replace(f"{port_file}.part", port_file)
    server.serve_forever()


if __name__ == "__main__":
    main(sys.argv[1])
