"""The server of `servers.glue_server`: moto's Glue, S3, STS and IAM, in a process of its own.

What is held to AWS's documentation beyond moto is Glue (see `servers.glue_moto`), and here:

- a session of AssumeRole may last as long as a test says, and may be ended;
- Lake Formation, which moto does not have, gives temporary credentials for a table that is there,
  to anyone who asks; they are good for everything;
- requests are refused, where a test asks for it, unless they are signed in the name of a key that
  is known and has not expired. The signature itself is not checked.
"""

from __future__ import annotations

import functools
import json
import logging
import os
import re
import secrets
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from http.client import responses
from typing import Any

import moto.core.responses
from moto.core.utils import method_names_from_class, utcnow
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from moto.sts.models import AssumedRole, STSBackend
from werkzeug.serving import make_server

from servers import glue_moto

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
        if not glue_moto.has_table(wanted["TableArn"]):
            return _json(400, _error("EntityNotFoundException", "Table not found"), start_response)
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
        glue_moto.CONTROLS.page_size = page_size
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
        return _json(400, _error(code, message), start_response)
    body = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>"
    if service == "sts":
        body = f"<ErrorResponse>{body}</ErrorResponse>"
    return _reply(403, "application/xml", body, start_response)


def _error(code: str, message: str) -> dict[str, str]:
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
    glue_moto.install()
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
