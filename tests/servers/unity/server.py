"""A Unity Catalog server that tests start, look into, and steer."""

from __future__ import annotations

import json
import select
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import requests

from ..processes import end
from .catalog_api import Bucket, CatalogApi, Credentials, OpenSourceApi
from .databricks import DatabricksApi
from .dialects import OPEN_SOURCE_0_6, Dialect, ErrorKind, Level
from .grants import Grants
from .http import (
    HOST,
    Answer,
    ApiError,
    Listener,
    Request,
    Route,
    ServerFault,
    error_answer,
    find,
    no_route,
)
from .published import InvalidReplyError, problems, statement_problems
from .state import Entry, Names, State

_FORBIDDEN = ErrorKind(403, "PERMISSION_DENIED")
_INTERNAL = ErrorKind(500, "INTERNAL")
_UNAUTHENTICATED = ErrorKind(401, "UNAUTHENTICATED")
_TESTS = Path(__file__).parents[2]
_START_SECONDS = 120.0
_TIMEOUT = 10.0
API = "/api/2.1/unity-catalog"


@dataclass(frozen=True)
class _Refusal:
    pattern: str
    kind: ErrorKind
    message: str
    about: str

    def fits(self, route: Route, request: Request) -> bool:
        names = [*request.query.values(), *request.parameters.values()]
        return fnmatchcase(route.key, self.pattern) and (not self.about or self.about in names)


class UnityServer:
    """The double, from `start` to `stop`; what it holds outlives a stop, and so does its port.

    ::

        with UnityServer(DATABRICKS) as server:
            server.add_catalog("main")
            ...
            assert server.counts["GET /tables"] == 3

    A request that breaks the published API is answered as the real server would, and remembered:
    the end of the ``with`` fails over it. A test that sends such a request on purpose takes it
    back with `take_violations`.
    """

    def __init__(self, dialect: Dialect = OPEN_SOURCE_0_6, port: int = 0) -> None:
        self.dialect = dialect
        self.state = State(dialect)
        self.credentials = Credentials(self.state)
        self.api: CatalogApi
        if dialect.databricks:
            self.api = DatabricksApi(self.state, self.credentials)
        else:
            self.api = OpenSourceApi(self.state, self.credentials)
        self.grants = Grants(self.state)
        self.api.lists = self.grants.lists
        self.token: str | None = None
        """Open source: the only token that is let in; None lets everybody in."""
        self.requests: list[Request] = []
        """Every request that came, in that order."""
        self.defects: list[str] = []
        """What the double itself did wrong."""
        self._violations: list[str] = []
        self._refusals: list[_Refusal] = []
        self._routes = self.api.routes()
        self._records = threading.Lock()
        self._port = port
        self._listener: Listener | None = None

    # -- life ------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """Where it answers: ``http://127.0.0.1:PORT``."""
        return f"http://{HOST}:{self._port}"

    @property
    def databricks(self) -> DatabricksApi:
        """The parts that only Databricks has."""
        assert isinstance(self.api, DatabricksApi), "this is not the double of Databricks"
        return self.api

    def start(self) -> UnityServer:
        """Listen, at the same port as before."""
        self._listener = Listener(self._port, self._answer)
        self._port = self._listener.server_address[1]
        self._listener.start()
        return self

    def stop(self) -> None:
        """Close the port and all connections, as a crash would; safe to repeat."""
        if self._listener is not None:
            self._listener.kill()
            self._listener = None

    def __enter__(self) -> UnityServer:
        return self.start()

    def __exit__(self, _type: object, error: object, _trace: object) -> None:
        self.stop()
        if error is None:
            self.require_clean()

    # -- what happened ---------------------------------------------------------------------------

    @property
    def counts(self) -> Counter[str]:
        """Requests by route: ``{"GET /tables/{full_name}": 2}``."""
        with self._records:
            return Counter(request.route for request in self.requests)

    def forget_requests(self) -> None:
        """Reset the counts."""
        with self._records:
            self.requests.clear()

    def take_violations(self) -> list[str]:
        """Return what requests did against the published API, and forget it."""
        with self._records:
            found, self._violations = self._violations, []
        return found

    def require_clean(self) -> None:
        """Raise AssertionError over defects of the double and requests against the API."""
        assert not self.defects, f"the double is wrong: {self.defects}"
        assert not self._violations, f"requests that the API does not allow: {self._violations}"

    # -- steering --------------------------------------------------------------------------------

    def refuse(
        self, pattern: str, kind: ErrorKind = _FORBIDDEN, message: str = "", *, about: str = ""
    ) -> None:
        """Answer requests whose route fits (``POST /tables*``) with an error, until `allow_all`.

        Args:
            about: The name that a request must have as an argument, if not any request.
        """
        text = message or "User is not authorized: PERMISSION_DENIED"
        self._refusals.append(_Refusal(pattern, kind, text, about))

    def allow_all(self) -> None:
        """Take back what `refuse` did."""
        self._refusals.clear()

    def add_bucket(self, uri: str, bucket: Bucket) -> None:
        """Vend credentials for places in ``s3://name`` from now on."""
        self.credentials.buckets[uri] = bucket

    def add_catalog(self, name: str, properties: Mapping[str, str] | None = None) -> Entry:
        """Make a catalog past the API."""
        body = {"name": name, "properties": dict(properties or {})}
        return self._add(Level.CATALOG, (), body)

    def add_schema(self, catalog: str, name: str, **more: Any) -> Entry:
        """Make a schema past the API."""
        place = {"catalog_name": catalog, "full_name": f"{catalog}.{name}"}
        return self._add(Level.SCHEMA, (catalog,), {"name": name, **place, **more})

    def add_table(self, catalog: str, schema: str, name: str, **more: Any) -> Entry:
        """Make a table past the API and all that it refuses; an external Delta table by default.

        A second one of a name makes the name answer 500, as after a lost race of two creators.
        """
        place = {"catalog_name": catalog, "schema_name": schema}
        kind = {"table_type": "EXTERNAL", "data_source_format": "DELTA", "columns": []}
        if self.dialect.databricks:
            place["full_name"] = f"{catalog}.{schema}.{name}"
        return self._add(Level.TABLE, (catalog, schema), {"name": name, **place, **kind, **more})

    def _add(self, level: Level, parents: tuple[str, ...], info: dict[str, Any]) -> Entry:
        with self.state.lock:
            entry = self.state.new_entry(level, {"properties": {}, **info})
            self._siblings(parents).add(entry)
            entry.json()
            return entry

    def table(self, catalog: str, schema: str, name: str) -> dict[str, Any]:
        """Return what the server holds of a table."""
        with self.state.lock:
            entry = self._siblings((catalog, schema)).get(name)
            assert entry is not None, f"{name} does not exist"
            return dict(entry.info)

    def remove_table(self, catalog: str, schema: str, name: str) -> None:
        """Remove a name, with all entries that have it, if there is any; so with its schema."""
        with self.state.lock:
            for parent in self._siblings((catalog,)):
                if parent.name == schema and any(e.name == name for e in parent.children):
                    parent.children.remove(name)

    def remove(self, *path: str) -> None:
        """Remove a catalog, or a schema, with all that is in it."""
        with self.state.lock:
            self._siblings(path[:-1]).remove(path[-1])

    def _siblings(self, parents: tuple[str, ...]) -> Names:
        found = self.state.catalogs
        for name in parents:
            parent = found.get(name)
            assert parent is not None, f"{name} of {parents} does not exist"
            found = parent.children
        return found

    # -- requests --------------------------------------------------------------------------------

    def _answer(self, request: Request) -> Answer:
        route, parameters, known_path = find(self._routes, request.method, request.path)
        key = route.key if route else f"{request.method} {request.path}"
        request = replace(request, route=key, parameters=parameters)
        with self._records:
            self.requests.append(request)
        if route is None:
            return no_route(
                known_path=known_path,
                databricks=self.dialect.databricks,
                method=request.method,
                path=request.path,
            )
        self._record_violations(route, request)
        return self._guarded(route, request)

    def _guarded(self, route: Route, request: Request) -> Answer:
        try:
            self._require_allowed(route, request)
            self._require_parameters(route, request)
            with self.state.lock:
                self.grants.require(request)
                answer = route.handler(request)
                self.grants.note_owner(request, answer)
                return answer
        except ApiError as error:
            return error_answer(error.kind, error.message, delta=route.delta)
        except ServerFault as error:
            return error_answer(_INTERNAL, str(error), delta=route.delta)
        except InvalidReplyError as error:
            self.defects.append(str(error))
            return error_answer(_INTERNAL, f"defect of the double: {error}", delta=route.delta)
        except ValueError as error:
            return error_answer(self.dialect.unparsable, str(error), delta=route.delta)

    def _require_allowed(self, route: Route, request: Request) -> None:
        if route.needs_token and isinstance(self.api, DatabricksApi):
            self.api.authority.require(request)
        elif self.token is not None and request.headers.get("authorization") != (
            f"Bearer {self.token}"
        ):
            raise ApiError(_UNAUTHENTICATED, "No authorization found.")
        for refusal in list(self._refusals):
            if refusal.fits(route, request):
                raise ApiError(refusal.kind, refusal.message)

    def _require_parameters(self, route: Route, request: Request) -> None:
        for name in sorted(route.required - set(request.query)):
            raise ValueError(f"Mandatory parameter/header is missing: {name}")

    def _record_violations(self, route: Route, request: Request) -> None:
        allowed = route.query | route.required
        found = [f"query.{key}: no such parameter" for key in set(request.query) - allowed]
        found += [f"query.{key}: missing" for key in route.required - set(request.query)]
        if route.request is not None or route.key == "POST /sql/statements":
            try:
                body = request.body
            except ValueError as error:
                found.append(f"body: {error}")
            else:
                found += (
                    problems(route.request, body) if route.request else statement_problems(body)
                )
        with self._records:
            self._violations += [f"{route.key}: {text}" for text in found]


# -- a process of its own --------------------------------------------------------------------------


class UnityProcess:
    """A context manager around ``python -m servers.unity``; ``url`` is where it answers."""

    def __init__(self, dialect: Dialect = OPEN_SOURCE_0_6, catalogs: Sequence[str] = ()) -> None:
        self._command = [sys.executable, "-m", "servers.unity", "--dialect", dialect.name]
        for name in catalogs:
            self._command += ["--catalog", name]
        self._process: subprocess.Popen[str] | None = None
        self.url = ""

    def __enter__(self) -> UnityProcess:
        self._process = subprocess.Popen(
            self._command, cwd=_TESTS, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
        )
        try:
            self.url = self._answer()
        except BaseException:
            self.stop()
            raise
        return self

    def _answer(self) -> str:
        assert self._process is not None
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], _START_SECONDS)
        url = self._process.stdout.readline().strip() if ready else ""
        if not url:
            raise RuntimeError("the Unity double did not start")
        return url

    def __exit__(self, _type: object, error: object, _trace: object) -> None:
        code = self.stop()
        assert error is not None or code == 0, "requests broke the published API: see its output"

    def stop(self) -> int:
        """End the process and return its exit code; safe to repeat."""
        if self._process is None:
            return 0
        code = end(self._process)
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._process = None
        return code


# -- raw requests ----------------------------------------------------------------------------------


class Raw:
    """Sends requests below the path of the API, and keeps its connections."""

    def __init__(self, url: str, token: str | None = None) -> None:
        self._url = url
        self._session = requests.Session()
        self._session.trust_env = False
        if token is not None:
            self._session.headers["Authorization"] = f"Bearer {token}"

    @classmethod
    def with_schema(cls, url: str) -> Raw:
        """Return a client of a server in which it has created a schema."""
        raw = cls(url)
        raw.create_schema()
        return raw

    def send(
        self, method: str, path: str, body: Any = None, *, start: str = API, **query: str
    ) -> requests.Response:
        """Return the reply; ``body`` is sent as JSON."""
        url = f"{self._url}{start}{path}"
        return self._session.request(method, url, params=query, json=body, timeout=_TIMEOUT)

    def get(self, path: str, **query: str) -> Any:
        """Return the JSON of a reply that must be a success."""
        return self._good(self.send("GET", path, **query))

    def post(self, path: str, body: Mapping[str, Any], *, start: str = API) -> Any:
        """Return the JSON of a reply that must be a success."""
        return self._good(self.send("POST", path, body, start=start))

    def error(self, method: str, path: str, body: Any = None, **query: str) -> tuple[int, str]:
        """Return status and ``error_code`` of a reply that must be an error."""
        reply = self.send(method, path, body, **query)
        assert reply.status_code >= 400, reply.text
        return reply.status_code, str(reply.json()["error_code"])

    def create_schema(self, catalog: str = "c", schema: str = "s") -> None:
        """Make a catalog with a schema."""
        self.post("/catalogs", {"name": catalog})
        self.post("/schemas", {"name": schema, "catalog_name": catalog})

    def close(self) -> None:
        """Close the connections."""
        self._session.close()

    @staticmethod
    def _good(reply: requests.Response) -> Any:
        assert reply.status_code < 300, reply.text
        return json.loads(reply.content) if reply.content else None


def table(name: str = "t", **more: Any) -> dict[str, Any]:
    """Return a request for an external Lance table ``c.s.NAME``."""
    return {
        "name": name,
        "catalog_name": "c",
        "schema_name": "s",
        "table_type": "EXTERNAL",
        "data_source_format": "TEXT",
        "columns": [],
        "storage_location": f"s3://bucket/{name}",
        "properties": {"table_type": "lance"},
        **more,
    }


def column(name: str = "id", **more: Any) -> dict[str, Any]:
    """Return a column of a request, with its type as a whole Spark StructField."""
    field = {"name": name, "type": "long", "nullable": True, "metadata": {}}
    return {
        "name": name,
        "type_text": "BIGINT",
        "type_name": "LONG",
        "type_json": json.dumps(field),
        "position": 0,
        "nullable": True,
        **more,
    }
