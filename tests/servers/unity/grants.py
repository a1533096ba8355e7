"""Users with some of the rights, as the open-source server with authorization has them.

What listings and reads by name show was measured on 0.4.1 and 0.7.0: the owner of a schema sees it
in no list without USE SCHEMA, though she reads it, and creates and drops tables in it; what exists
and may not be seen answers 403 by name, and what does not exist 404. That a list of tables leaves
out those without a right on them, and who may change what, follows the server's source.

Credentials were measured on 0.7.0 with tables on S3: those of a table are for its owner, or for who
has SELECT, and MODIFY to write; the administrator has none for tables of others. Those of a path
are for who has a right on an external location, or for the administrator. That a table inside an
external location takes CREATE EXTERNAL TABLE there follows the source. Not here: that the server
refuses tables whose locations overlap.
"""

from __future__ import annotations

import json

from .dialects import ErrorKind, Level
from .messages import Answer, ApiError, Request
from .state import Entry, Names, State

USE_CATALOG, USE_SCHEMA = "USE CATALOG", "USE SCHEMA"
CREATE_SCHEMA, CREATE_TABLE = "CREATE SCHEMA", "CREATE TABLE"
SELECT, MODIFY = "SELECT", "MODIFY"
CREATE_EXTERNAL_TABLE = "CREATE EXTERNAL TABLE"
READ_FILES, WRITE_FILES = "READ FILES", "WRITE FILES"

_FORBIDDEN = ErrorKind(403, "PERMISSION_DENIED")
_PREFIX = "Bearer "
_TABLE_CREDENTIALS = "POST /temporary-table-credentials"
_PATH_CREDENTIALS = "POST /temporary-path-credentials"
_ON_LOCATIONS = {
    "PATH_READ": {READ_FILES},
    "PATH_READ_WRITE": {READ_FILES, WRITE_FILES},
    "PATH_CREATE_TABLE": {CREATE_EXTERNAL_TABLE},
}
_PARENTS = {
    "POST /schemas": ("catalog_name",),
    "POST /tables": ("catalog_name", "schema_name"),
}
_MADE = {
    "POST /catalogs": ("name",),
    "POST /schemas": ("catalog_name", "name"),
    "POST /tables": ("catalog_name", "schema_name", "name"),
}

Path = tuple[str, ...]


class Grants:
    """Who may do what. Requests without the token of a user are the administrator's."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._users: dict[str, str] = {}
        self._owners: dict[str, str] = {}
        self._granted: set[tuple[str, str, str]] = set()
        self._locations: dict[str, dict[str, set[str]]] = {}

    def add_user(self, name: str) -> str:
        """Return the token of a user, who has no right yet."""
        token = f"token-of-{name}"
        self._users[token] = name
        return token

    def grant(self, user: str, full_name: str, *privileges: str) -> None:
        """Give a user rights on a catalog, a schema or a table."""
        entry = self._chain(tuple(full_name.split(".")))[-1]
        self._granted.update((user, entry.id, each) for each in privileges)

    def grant_location(self, user: str, url: str, *privileges: str) -> None:
        """Give a user rights on an external location, which is made if it does not exist."""
        self._locations.setdefault(url, {}).setdefault(user, set()).update(privileges)

    def user_of(self, request: Request) -> str | None:
        """Return the user who sends a request; None for the administrator."""
        return self._users.get(request.headers.get("authorization", "").removeprefix(_PREFIX))

    # -- what requests show and change -----------------------------------------------------------

    def lists(self, request: Request, entry: Entry) -> bool:
        """Return whether a listing shows an object to the user of the request."""
        user = self.user_of(request)
        if user is None:
            return True
        chain = self._chain(_path_of(entry))
        if entry.level is Level.SCHEMA:  # OWNER does not count
            catalog, schema = chain
            used = self._has(user, catalog, USE_CATALOG) and self._has(user, schema, USE_SCHEMA)
            return used or self._owns(user, catalog)
        return self._reads(user, chain)

    def require(self, request: Request) -> None:
        """Raises ApiError where the user may not do this to what exists."""
        user = self.user_of(request)
        if request.route == _TABLE_CREDENTIALS:
            self._require_table_credentials(user, request)
        if user is None:
            return
        if request.route == _PATH_CREDENTIALS:
            needed = _ON_LOCATIONS.get(str(request.fields.get("operation")), set())
            if not needed <= self._on_location(user, str(request.fields.get("url"))):
                raise _refusal()
        verb, _, collection = request.route.partition(" ")
        names = _names_in(request)
        try:
            chain = self._chain(names)
        except LookupError:
            return  # the answer is that it does not exist
        if request.route in _PARENTS:
            allowed = self._creates(user, chain)
        elif collection in ("/catalogs", "/schemas", "/tables") or not chain:
            allowed = True  # a listing, whose rows are filtered
        elif verb == "GET":
            allowed = self._reads(user, chain)
        else:
            allowed = self._changes(user, chain)
        if allowed and request.route == "POST /tables":
            allowed = self._may_use_location(user, request.fields.get("storage_location"))
        if not allowed:
            raise _refusal()

    def note_owner(self, request: Request, answer: Answer) -> None:
        """Make the user who has created an object its owner."""
        user, keys = self.user_of(request), _MADE.get(request.route)
        if user is not None and keys is not None and answer.status == 200:
            made = json.loads(answer.body)
            self._owners[self._chain(tuple(made[key] for key in keys))[-1].id] = user

    # -- credentials -----------------------------------------------------------------------------

    def _require_table_credentials(self, user: str | None, request: Request) -> None:
        """Raises ApiError where the user gets none for the table; None is the administrator."""
        wanted = request.fields
        for table in self._state.tables():
            if table.id != wanted.get("table_id"):
                continue
            if self._owners.get(table.id) == user:
                return
            needed = {SELECT} if wanted.get("operation") == "READ" else {SELECT, MODIFY}
            chain = self._chain(_path_of(table))
            has_all = user is not None and all(self._has(user, table, each) for each in needed)
            if not (has_all and self._reads(str(user), chain)):
                raise _refusal()

    def _on_location(self, user: str, url: str) -> set[str]:
        """Return the rights of a user on the external location that contains a URL."""
        for location, rights in self._locations.items():
            if f"{url}/".startswith(f"{location.rstrip('/')}/"):
                return rights.get(user, set())
        return set()

    def _may_use_location(self, user: str, url: object) -> bool:
        inside = any(f"{url}/".startswith(f"{each.rstrip('/')}/") for each in self._locations)
        return not inside or CREATE_EXTERNAL_TABLE in self._on_location(user, str(url))

    # -- rights ----------------------------------------------------------------------------------

    def _reads(self, user: str, chain: list[Entry]) -> bool:
        catalog, *inner = chain
        if self._owns(user, catalog):
            return True
        if not self._has(user, catalog, USE_CATALOG):
            return False
        if not inner:
            return True
        schema, *tables = inner
        if self._owns(user, schema):
            return True
        if not self._has(user, schema, USE_SCHEMA):
            return False
        return all(
            self._owns(user, each) or self._has(user, each, SELECT) or self._has(user, each, MODIFY)
            for each in tables
        )

    def _changes(self, user: str, chain: list[Entry]) -> bool:
        return self._reads(user, chain) and any(self._owns(user, each) for each in chain)

    def _creates(self, user: str, parents: list[Entry]) -> bool:
        right = CREATE_SCHEMA if len(parents) == 1 else CREATE_TABLE
        owns = any(self._owns(user, each) for each in parents)
        return self._reads(user, parents) and (owns or self._has(user, parents[-1], right))

    def _owns(self, user: str, entry: Entry) -> bool:
        return self._owners.get(entry.id) == user

    def _has(self, user: str, entry: Entry, privilege: str) -> bool:
        return (user, entry.id, privilege) in self._granted

    def _chain(self, path: Path) -> list[Entry]:
        """Return a catalog, a schema in it and a table in that. Raises LookupError."""
        found: list[Entry] = []
        siblings: Names = self._state.catalogs
        for name in path:
            entry = siblings.get(name)
            if entry is None:
                raise LookupError(name)
            found.append(entry)
            siblings = entry.children
        return found


def _refusal() -> ApiError:
    return ApiError(_FORBIDDEN, "Access denied: the user has no right to do this")


def _names_in(request: Request) -> Path:
    """Return the names of the object that a request is about, or of the parent to create it in."""
    if request.route in _PARENTS:
        body = request.fields
        return tuple(str(body.get(key)) for key in _PARENTS[request.route])
    names = request.parameters
    if "table" in names:
        return (names["catalog"], names["schema"], names["table"])
    return tuple((names.get("full_name") or names.get("name") or "").split("."))


def _path_of(entry: Entry) -> Path:
    keys = ("catalog_name", "schema_name")
    return (*(entry.info[key] for key in keys if key in entry.info), entry.name)
