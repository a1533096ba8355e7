"""Users with some of the rights, as the open-source server with authorization has them.

Measured on 0.4.1 and 0.7.0, in 120 combinations of rights on a catalog, a schema and a table. A
right on an object counts for all that is in it; that somebody owns it does not. The owner of a
schema sees it in no list without USE SCHEMA, though she reads it, and creates and drops tables in
it. The administrator reads everything, and changes and drops only what is in something of his own.
What exists and may not be seen answers 403 by name, and what does not exist 404. That a table in an
external location takes CREATE EXTERNAL TABLE there follows the source. Not here: storage roots,
which nobody may have, and the right to create catalogs, which everybody has.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from .dialects import ErrorKind, Level
from .http import Answer, ApiError, Request
from .rules import normalized, overlap
from .state import Entry, Names, State

USE_CATALOG, USE_SCHEMA = "USE CATALOG", "USE SCHEMA"
CREATE_SCHEMA, CREATE_TABLE = "CREATE SCHEMA", "CREATE TABLE"
SELECT, MODIFY = "SELECT", "MODIFY"
CREATE_EXTERNAL_TABLE = "CREATE EXTERNAL TABLE"
READ_FILES, WRITE_FILES = "READ FILES", "WRITE FILES"

_FORBIDDEN = ErrorKind(403, "PERMISSION_DENIED")
_PREFIX = "Bearer "
_PARENTS = {"POST /schemas": ("catalog_name",), "POST /tables": ("catalog_name", "schema_name")}
_MADE = {
    "POST /catalogs": ("name",),
    "POST /schemas": ("catalog_name", "name"),
    "POST /tables": ("catalog_name", "schema_name", "name"),
}
_RENAME = "POST /delta/v1/catalogs/{catalog}/schemas/{schema}/tables/{table}/rename"
_TABLE_CREDENTIALS = "POST /temporary-table-credentials"
_PATH_CREDENTIALS = "POST /temporary-path-credentials"

_ON_LOCATIONS = {
    "PATH_READ": {READ_FILES},
    "PATH_READ_WRITE": {READ_FILES, WRITE_FILES},
    "PATH_CREATE_TABLE": {CREATE_EXTERNAL_TABLE},
}

Path = tuple[str, ...]


class Grants:
    """Who may do what. Requests without the token of a user are the administrator's.

    Everybody may do everything until there is a user.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._users: dict[str, str] = {}
        self._owners: dict[str, str] = {}
        self._granted: set[tuple[str | None, str, str]] = set()
        self._locations: dict[str, dict[str, set[str]]] = {}
        self.refuses_overlaps = False
        """Whether a table whose location overlaps another's is refused once there is a user, as the
        server does. Entries that are older than its authorization overlap all the same."""

    def add_user(self, name: str) -> str:
        """Return the token of a user, who has no right yet."""
        token = f"token-of-{name}"
        self._users[token] = name
        return token

    def grant(self, user: str | None, full_name: str, *privileges: str) -> None:
        """Give a user rights on a catalog, a schema or a table, and on all that is in it.

        None is the administrator, who needs them in a catalog of somebody else.
        """
        entry = self._chain(tuple(full_name.split(".")))[-1]
        self._granted.update((user, entry.id, each) for each in privileges)

    def grant_location(self, user: str, url: str, *privileges: str) -> None:
        """Give a user rights on an external location, which is made if it does not exist."""
        self._locations.setdefault(url, {}).setdefault(user, set()).update(privileges)

    def revoke(self, user: str | None, full_name: str, *privileges: str) -> None:
        """Take back what `grant` gave."""
        entry = self._chain(tuple(full_name.split(".")))[-1]
        self._granted.difference_update((user, entry.id, each) for each in privileges)

    def give(self, user: str, full_name: str) -> None:
        """Make a user the owner of a catalog, a schema or a table, as who creates it is."""
        self._owners[self._chain(tuple(full_name.split(".")))[-1].id] = user

    def user_of(self, request: Request) -> str | None:
        """Return the user who sends a request; None for the administrator."""
        return self._users.get(request.headers.get("authorization", "").removeprefix(_PREFIX))

    # -- what requests show and change -----------------------------------------------------------

    def lists(self, request: Request, entry: Entry) -> bool:
        """Return whether a listing shows an object to the user of the request."""
        user = self.user_of(request)
        if user is None:
            return True
        rights = self._rights(user, self._chain(_path_of(entry)))
        return rights.lists_schema() if entry.level is Level.SCHEMA else rights.reads()

    def require(self, request: Request) -> None:
        """Raises ApiError where the user may not do this to what exists."""
        if not self._users:
            return
        user = self.user_of(request)
        if request.route == _PATH_CREDENTIALS:
            allowed = self._vends_for_path(user, request)
        else:
            rule = _RULES.get(request.route)
            try:
                chain = self._chain(self._names_in(request))
            except LookupError:
                return  # the answer is that it does not exist
            allowed = rule is None or rule(self._rights(user, chain), request)
        if allowed and request.route == "POST /tables":
            allowed = self._may_use_location(user, request.fields.get("storage_location"))
        if not allowed:
            raise ApiError(_FORBIDDEN, "Access denied.")

    def note_owner(self, request: Request, answer: Answer) -> None:
        """Make the user who has created an object its owner."""
        user, keys = self.user_of(request), _MADE.get(request.route)
        if user is not None and keys is not None and answer.status == 200:
            made = json.loads(answer.body)
            self.give(user, ".".join(made[key] for key in keys))

    def _vends_for_path(self, user: str | None, request: Request) -> bool:
        """A path in a table takes the rights on that table, another one an external location."""
        body = request.fields
        tables = self._tables_at(body.get("url"))
        operation = body.get("operation")
        if tables and operation == "PATH_CREATE_TABLE":
            return False
        if user is None:
            return True
        if not tables:
            rights_on_it = self._on_location(user, body.get("url"))
            return rights_on_it is not None and _ON_LOCATIONS[str(operation)] <= rights_on_it
        if len(tables) != 1:
            return False
        rights = self._rights(user, self._chain(_path_of(tables[0])))
        return rights.vends(write=operation != "PATH_READ")

    def _may_use_location(self, user: str | None, url: object) -> bool:
        if self.refuses_overlaps and self._tables_at(url):
            return False
        held = self._on_location(user, url)
        return user is None or held is None or CREATE_EXTERNAL_TABLE in held

    def _on_location(self, user: str | None, url: object) -> set[str] | None:
        """Return a user's rights on the external location that contains a URL; None without one."""
        for location, rights in self._locations.items():
            if f"{url}/".startswith(f"{location.rstrip('/')}/"):
                return rights.get(user or "", set())
        return None

    def _tables_at(self, location: object) -> list[Entry]:
        """Return the tables whose location overlaps one."""
        try:
            place = normalized(str(location), self._state.dialect)
        except ApiError:
            return []
        return [
            table
            for table in self._state.tables()
            if overlap(place, str(table.info.get("storage_location")))
        ]

    def _names_in(self, request: Request) -> Path:
        """Return the names of what a request is about, or of the parent to create it in."""
        if request.route in _PARENTS:
            return tuple(str(request.fields.get(key)) for key in _PARENTS[request.route])
        if request.route == _TABLE_CREDENTIALS:
            wanted = request.fields.get("table_id")
            found = [_path_of(table) for table in self._state.tables() if table.id == wanted]
            return found[0] if found else ("",)
        names = request.parameters
        if "table" in names:
            return (names["catalog"], names["schema"], names["table"])
        return tuple((names.get("full_name") or names.get("name") or "").split("."))

    def _rights(self, user: str | None, chain: list[Entry]) -> _Rights:
        owned = [self._owners.get(entry.id) == user for entry in chain]
        held: list[set[str]] = []
        for entry in chain:
            own = {right for who, of, right in self._granted if (who, of) == (user, entry.id)}
            held.append(own | (held[-1] if held else set()))
        return _Rights(user is None, owned, held)

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


@dataclass(frozen=True)
class _Rights:
    """What a user may do to a catalog, a schema in it or a table in that.

    Args:
        is_admin: Whether the metastore is the user's.
        owns: Whether each of the objects is the user's, the catalog first.
        held: The rights on each, with those on what it is in.
    """

    is_admin: bool
    owns: list[bool]
    held: list[set[str]]

    @property
    def _uses_catalog(self) -> bool:
        return USE_CATALOG in self.held[0]

    @property
    def _uses_schema(self) -> bool:
        return USE_SCHEMA in self.held[1]

    def reads(self) -> bool:
        if self.is_admin or self.owns[0] or not self._uses_catalog:
            return self.is_admin or self.owns[0]
        if len(self.held) == 1 or self.owns[1]:
            return True
        if len(self.held) == 2:
            return self._uses_schema
        return self._uses_schema and (self.owns[2] or bool({SELECT, MODIFY} & self.held[2]))

    def lists_schema(self) -> bool:
        """OWNER of the schema does not count."""
        return self.is_admin or self.owns[0] or (self._uses_catalog and self._uses_schema)

    def creates_schema(self, root: object) -> bool:
        allowed = self.owns[0] or {USE_CATALOG, CREATE_SCHEMA} <= self.held[0]
        return allowed and root is None

    def creates_table(self) -> bool:
        """OWNER of the catalog alone does not count."""
        rights_on_schema = {USE_SCHEMA, CREATE_TABLE} <= self.held[1]
        return (self.owns[0] or self._uses_catalog) and (self.owns[1] or rights_on_schema)

    def changes_schema(self) -> bool:
        """OWNER of the catalog alone does not count, and USE SCHEMA does."""
        return self.is_admin or self.owns[1] or (self._uses_catalog and self._uses_schema)

    def drops_schema(self) -> bool:
        own = self.owns[1] and self._uses_catalog
        return self.is_admin or self.owns[0] or own

    def drops_table(self) -> bool:
        """To be the administrator does not count."""
        if self.owns[0] or not self._uses_catalog:
            return self.owns[0]
        return self.owns[1] or (self._uses_schema and self.owns[2])

    def vends(self, *, write: bool) -> bool:
        """To be the administrator, or OWNER of the catalog or schema alone, does not count."""
        needed = {SELECT, MODIFY} if write else {SELECT}
        return (
            (self.owns[0] or self._uses_catalog)
            and (self.owns[1] or self._uses_schema)
            and (self.owns[2] or needed <= self.held[2])
        )


_Rule = Callable[[_Rights, Request], bool]


def _reads(rights: _Rights, _: Request) -> bool:
    return rights.reads()


_RULES: dict[str, _Rule] = {
    "GET /catalogs/{name}": _reads,
    "PATCH /catalogs/{name}": lambda rights, _: rights.owns[0],
    "DELETE /catalogs/{name}": lambda rights, _: rights.is_admin or rights.owns[0],
    "POST /schemas": lambda rights, it: rights.creates_schema(it.fields.get("storage_root")),
    "GET /schemas/{full_name}": _reads,
    "PATCH /schemas/{full_name}": lambda rights, _: rights.changes_schema(),
    "DELETE /schemas/{full_name}": lambda rights, _: rights.drops_schema(),
    "POST /tables": lambda rights, _: rights.creates_table(),
    "GET /tables/{full_name}": _reads,
    "DELETE /tables/{full_name}": lambda rights, _: rights.drops_table(),
    _RENAME: lambda rights, _: rights.drops_table() and rights.creates_table(),
    _TABLE_CREDENTIALS: lambda rights, it: rights.vends(write=it.fields.get("operation") != "READ"),
}
"""What a request takes; a listing takes nothing, and its rows are filtered."""


def _path_of(entry: Entry) -> Path:
    keys = ("catalog_name", "schema_name")
    return (*(entry.info[key] for key in keys if key in entry.info), entry.name)
