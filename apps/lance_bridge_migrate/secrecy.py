"""What no plan may hold: a location with a password."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator

from lance_bridge.redaction import IN_URL


def _without_password(text: str) -> str:
    if IN_URL.search(text):
        raise ValueError("no plan keeps a password: give it to the session or the catalog")
    return text


PlainLocation = Annotated[str, AfterValidator(_without_password)]
"""A path or URI in the options of a kind: one without a user and password."""
