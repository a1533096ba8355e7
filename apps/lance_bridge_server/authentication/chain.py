"""Several methods of authentication, in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from lance_namespace.errors import UnauthenticatedError
from starlette.requests import HTTPConnection

from ..principals import ANONYMOUS, Authenticator, Principal
from .tokens import tokens_of


@runtime_checkable
class TokenAuthenticator(Authenticator, Protocol):
    """An authenticator of tokens, which `tokens_of` finds in a request."""

    def takes(self, token: str) -> bool:
        """Return whether this authenticator is responsible for a token, going by its form."""


class AuthenticatorChain:
    """Runs several methods, and returns the first principal that one of them finds.

    Every credential in a request must be valid, even if an earlier method has found a principal or
    anonymous requests are allowed: an invalid key never gets another principal's rights.

    Args:
        methods: The methods, in order.
        allow_anonymous: Whether requests without credentials are anonymous instead of refused.
    """

    def __init__(self, methods: Sequence[Authenticator], *, allow_anonymous: bool = False) -> None:
        self._methods = tuple(methods)
        self._of_tokens = [each for each in methods if isinstance(each, TokenAuthenticator)]
        self._allow_anonymous = allow_anonymous

    async def authenticate(self, connection: HTTPConnection) -> Principal | None:
        """Return the principal, or None if there are no credentials and anonymous is not allowed.

        Raises:
            UnauthenticatedError: (16) a credential is invalid.
            ServiceUnavailableError: (17) the service that checks it does not respond.
        """
        self._refuse_unknown_tokens(connection)
        found = [await each.authenticate(connection) for each in self._methods]
        principal = next((each for each in found if each is not None), None)
        if principal is None and self._allow_anonymous:
            return ANONYMOUS
        return principal

    def _refuse_unknown_tokens(self, connection: HTTPConnection) -> None:
        """Refuse tokens of an unknown form, unless no method reads tokens.

        LanceDB's clients always send an API key, even to servers that use other methods only.
        """
        for token in tokens_of(connection) if self._of_tokens else ():
            if not any(each.takes(token) for each in self._of_tokens):
                raise UnauthenticatedError(
                    "This server does not accept API keys or tokens of this form"
                )
