"""Tokens and API keys in the headers of a request."""

from __future__ import annotations

from starlette.requests import HTTPConnection

API_KEY_HEADER = "x-api-key"
_AUTHORIZATION = "authorization"
_BEARER = "bearer"


def tokens_of(connection: HTTPConnection) -> list[str]:
    """Return the distinct tokens of a request: ``Authorization: Bearer`` and ``x-api-key``.

    Some clients can send only one of the two headers, so each may carry any type of token.
    """
    found = []
    for value in connection.headers.getlist(_AUTHORIZATION):
        scheme, _, token = value.partition(" ")
        if scheme.lower() == _BEARER:
            found.append(token.strip())
    found += [value.strip() for value in connection.headers.getlist(API_KEY_HEADER)]
    return list(dict.fromkeys(token for token in found if token))
