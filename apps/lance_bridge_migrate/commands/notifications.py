"""Notifications at the end of a migration: run a user's command, or post to a URL."""

from __future__ import annotations

import json
import os
import subprocess
import urllib.error
import urllib.request
from http.client import HTTPException
from typing import Any
from urllib.parse import urlsplit

from lance_namespace.errors import ServiceUnavailableError

from lance_bridge.redaction import redact
from lance_bridge_cli.output import message

from ..record import Record

_SECONDS = 10.0


def run_when_done(command: str, record: Record) -> None:
    """Run the user's command, and print a message if it fails."""
    environment = {
        **os.environ,
        "LANCE_BRIDGE_MIGRATION": record.plan.id,
        "LANCE_BRIDGE_MIGRATION_STATE": record.state.value,
    }
    # Standard output is for the result of this command.
    done = subprocess.run(
        command, shell=True, check=False, env=environment, stdin=subprocess.DEVNULL, stdout=2
    )
    if done.returncode:
        message(f"the command of --when-done ended with exit code {done.returncode}")


def notify_when_done(url: str, record: Record) -> None:
    """Post the result of a migration to a URL, and print a message if that fails."""
    try:
        post_result(url, record)
    except ServiceUnavailableError as error:
        message(f"--when-done-url: {error}")


def post_result(url: str, record: Record) -> None:
    """Post the result of a migration as JSON, once.

    Raises:
        ServiceUnavailableError: (17) no response within ten seconds, or a status other than 2xx.
            The message contains only the host, because the rest of such a URL is often secret.
    """
    request = urllib.request.Request(
        url,
        data=json.dumps(result_of(record)).encode(),
        headers={"Content-Type": "application/json", "User-Agent": "lance-bridge"},
        method="POST",
    )
    host = urlsplit(url).hostname
    try:
        with urllib.request.build_opener(_NoRedirects).open(request, timeout=_SECONDS):
            return
    except urllib.error.HTTPError as error:
        error.close()
        raise ServiceUnavailableError(f"{host} answered with status {error.code}") from error
    except UnicodeEncodeError as error:
        raise ServiceUnavailableError(
            f"{host} was not called: percent-encode the characters of the URL that are not ASCII"
        ) from error
    except (OSError, HTTPException) as error:
        reason = getattr(error, "reason", None) or type(error).__name__
        raise ServiceUnavailableError(f"{host} did not respond: {reason}") from error


def result_of(record: Record) -> dict[str, Any]:
    """Return the posted JSON: names, states, counts and errors; no properties, options or facts."""
    return {
        "migration": record.plan.id,
        "type": record.plan.type,
        "state": record.state.value,
        "counts": {state.value: count for state, count in record.counts.items()},
        "items": [
            {
                "source": [redact(name) for name in each.item.source],
                "target": list(each.item.target),
                "state": each.state.value,
                "verified": each.verified,
                "error": None if each.error is None else redact(each.error.message),
            }
            for each in record.items.values()
        ],
    }


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Refuses redirects, which turn POST into GET and may send table names to another host."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None
