"""Vendors of storage credentials: AWS, Azure, Google, and the options of ``storage.*``.

Each has its own extra (``vend-aws``, ``vend-azure``, ``vend-google``) and is imported by its entry
point in the group ``lance_bridge.vendors``.
This module has what they share: patterns of URLs, and errors of services.
"""

from __future__ import annotations

from dataclasses import dataclass

from lance_namespace.errors import (
    InternalError,
    LanceNamespaceError,
    PermissionDeniedError,
    ServiceUnavailableError,
    ThrottlingError,
    UnsupportedOperationError,
)

URL = r"^https?://([\w.-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?/?$"
"""The URL of a service, without a path. It has anchors because pydantic searches for patterns."""
HTTPS_URL = URL.replace("https?", "https")
CLOCK = "The clock of this machine is wrong"
LATER = "Retry later"


def without_slash(url: str | None) -> str | None:
    """Return a URL without a trailing slash."""
    return url.rstrip("/") if url else None


@dataclass(frozen=True)
class Refusals:
    """Classifies a service's error responses by their messages, or else by their status."""

    service: str
    clock: tuple[str, ...]
    """Texts in messages about a wrong clock."""
    throttled: tuple[str, ...]
    refused: tuple[str, ...]
    advice: str
    """What to check if the service refuses."""
    addresses: str
    """The options with the service's addresses, to check if it is not found there."""

    def to_error(self, what: str, status: int, text: str) -> LanceNamespaceError:
        """Return the error for a response.

        Args:
            what: What was requested, for the message.
            status: The HTTP status; 0 if unknown.
        """
        error_type, advice = self._classify(status, text)
        response = f"{status}: {text}" if status else text
        hint = f". {advice}" if advice else ""
        return error_type(f"No {what}: {self.service} returned {response}{hint}")

    def _classify(self, status: int, text: str) -> tuple[type[LanceNamespaceError], str]:
        def says(parts: tuple[str, ...]) -> bool:
            return any(each in text for each in parts)

        if says(self.clock):
            return ServiceUnavailableError, CLOCK
        if status == 429 or says(self.throttled):
            return ThrottlingError, LATER
        if status in (401, 403) or says(self.refused):
            return PermissionDeniedError, self.advice
        if status in (404, 405, 501):
            return UnsupportedOperationError, f"Check {self.addresses}"
        return (ServiceUnavailableError if status >= 500 else InternalError), ""
