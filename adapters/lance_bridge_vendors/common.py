"""What the vendors have in common: addresses, and errors of services."""

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
"""The address of a service, without a path. pydantic searches for a pattern that has no anchors."""
HTTPS_URL = URL.replace("https?", "https")
CLOCK = "The clock of this machine is wrong"
LATER = "Repeat it later"


def without_slash(url: str | None) -> str | None:
    """Return an address without the slash at its end."""
    return url.rstrip("/") if url else None


def first_line(text: object) -> str:
    """Return the beginning of a service's message."""
    return str(text).strip().split("\n", 1)[0][:300]


@dataclass(frozen=True)
class Refusals:
    """What a service's answers mean, by what their messages contain, or else by their status."""

    service: str
    clock: tuple[str, ...]
    """In messages about a clock that is wrong."""
    throttled: tuple[str, ...]
    refused: tuple[str, ...]
    advice: str
    """What to check when it refuses."""
    addresses: str
    """The options with addresses, where there may be no such service."""

    def to_error(self, what: str, status: int, text: str) -> LanceNamespaceError:
        """Return the error for an answer.

        Args:
            what: What was wanted, for the message.
            status: The HTTP status; 0 if it is not known.
        """
        kind, advice = self._kind(status, text)
        answer = f"{status}: {text}" if status else text
        hint = f". {advice}" if advice else ""
        return kind(f"No {what}: {self.service} answers {answer}{hint}")

    def _kind(self, status: int, text: str) -> tuple[type[LanceNamespaceError], str]:
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
