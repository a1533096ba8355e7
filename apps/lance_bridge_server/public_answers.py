"""Removes credentials from the responses of other libraries' namespaces.

The scope of the credentials in such responses is unknown: they may be the server's own.
lance-bridge's own namespaces know the scope (`lance_bridge.TableCredentials`).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from lance_namespace import LanceNamespace
from pydantic import BaseModel

from lance_bridge.storage_options import public_only
from lance_bridge_federated.delegation import delegates


@delegates
class PublicAnswers(LanceNamespace):
    """A namespace whose responses contain only public storage options."""

    def __init__(self, namespace: LanceNamespace, public: Collection[str]) -> None:
        """Args: public: The names of public options, without the prefixes of their stores."""
        self.namespace = namespace
        self._public = public

    def delegate(self, operation: str, request: Any, *rows: Any) -> Any:
        """Call the namespace, and remove private storage options from its response."""
        answer = getattr(self.namespace, operation)(request, *rows)
        _remove_private_options(answer, self._public)
        return answer

    def namespace_id(self) -> str:
        """Return what the namespace is connected to."""
        return self.namespace.namespace_id()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.namespace, name)


def _remove_private_options(answer: Any, public: Collection[str]) -> None:
    """Remove private storage options from a response, and from the responses in it."""
    if isinstance(answer, list):
        for each in answer:
            _remove_private_options(each, public)
    elif isinstance(answer, dict):
        if isinstance(answer.get("storage_options"), dict):
            answer["storage_options"] = public_only(answer["storage_options"], public)
    elif isinstance(answer, BaseModel):
        for name in type(answer).model_fields:
            value = getattr(answer, name)
            if name == "storage_options":
                setattr(answer, name, public_only(value or {}, public) or None)
            else:
                _remove_private_options(value, public)
