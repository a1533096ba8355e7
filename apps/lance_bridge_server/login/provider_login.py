"""Signing in at an OpenID Connect provider: authorization code with PKCE, state and nonce.

Sources: OpenID Connect Core 1.0, section 3.1; RFC 7636 (PKCE); RFC 9207 (``iss`` in responses).
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode

from joserfc.util import urlsafe_b64encode
from lance_namespace.errors import ServiceUnavailableError, UnauthenticatedError

from ..authentication.oidc import OidcTokens
from ..authentication.provider import ProviderKeys, is_protected
from .identities import Identity

_SERVER_ERROR = 500
_OK = 200
_LONGEST_ERROR = 80


@dataclass(frozen=True)
class ProviderClient:
    """This server's client registration at an identity provider."""

    client_id: str
    secret: str | None = field(default=None, repr=False)
    scopes: tuple[str, ...] = ("openid", "profile")
    label: str = ""
    """The label of the button."""


@dataclass(frozen=True)
class LoginAttempt:
    """The state of an attempt to sign in, which the browser keeps in an encrypted cookie."""

    state: str
    nonce: str
    verifier: str = field(repr=False)

    @classmethod
    def make(cls) -> LoginAttempt:
        """Return a new attempt with random values."""
        return cls(*(secrets.token_urlsafe(32) for _ in range(3)))

    @property
    def challenge(self) -> str:
        """The code challenge of PKCE, by the method S256."""
        return urlsafe_b64encode(hashlib.sha256(self.verifier.encode()).digest()).decode()


class ProviderLogin:
    """Signs users in at one provider.

    Args:
        keys: The provider's documents and keys.
        tokens: Verifies the ID tokens that the provider issues to the client.
    """

    def __init__(self, client: ProviderClient, keys: ProviderKeys, tokens: OidcTokens) -> None:
        self.client = client
        self.issuer = keys.issuer
        self.label = client.label or keys.issuer.partition("://")[2].partition("/")[0]
        self._keys = keys
        self._tokens = tokens

    async def address(self, attempt: LoginAttempt, callback: str) -> str:
        """Return the URL at the provider to which the browser is redirected.

        Args:
            callback: The URL to which the provider redirects the browser back.

        Raises:
            ServiceUnavailableError: (17) the provider does not respond.
        """
        endpoint = await self._endpoint("authorization_endpoint")
        query = {
            "response_type": "code",
            "client_id": self.client.client_id,
            "redirect_uri": callback,
            "scope": " ".join(self.client.scopes),
            "state": attempt.state,
            "nonce": attempt.nonce,
            "code_challenge": attempt.challenge,
            "code_challenge_method": "S256",
        }
        return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(query, quote_via=quote)}"

    async def finish(
        self, attempt: LoginAttempt, answer: Mapping[str, str], callback: str
    ) -> Identity:
        """Return the identity of the user who has signed in.

        Args:
            answer: The query parameters of the provider's redirect back.
            callback: As for `address`.

        Raises:
            UnauthenticatedError: (16) the provider has refused, the parameters belong to another
                attempt, or the token is not valid.
            ServiceUnavailableError: (17) the provider does not respond.
        """
        code = self._code(attempt, answer)
        token = await self._exchange(attempt, code, callback)
        principal = await self._tokens.verify(token)
        claims = principal.claims
        if not hmac.compare_digest(str(claims.get("nonce")).encode(), attempt.nonce.encode()):
            raise UnauthenticatedError("The token is not for this attempt to sign in")
        if claims.get("azp", self.client.client_id) != self.client.client_id:
            raise UnauthenticatedError("The token was issued to another client")
        return Identity("oidc", self.issuer, principal)

    def _code(self, attempt: LoginAttempt, answer: Mapping[str, str]) -> str:
        if not hmac.compare_digest(answer.get("state", "").encode(), attempt.state.encode()):
            raise UnauthenticatedError(
                "The response belongs to another attempt to sign in; try again"
            )
        if answer.get("iss", self.issuer) != self.issuer:
            raise UnauthenticatedError("The response is from another identity provider")
        if "code" not in answer:
            raise UnauthenticatedError(f"The identity provider refused: {_error_code(answer)}")
        return answer["code"]

    async def _exchange(self, attempt: LoginAttempt, code: str, callback: str) -> str:
        """Exchange a code for an ID token."""
        endpoint = await self._endpoint("token_endpoint")
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": callback,
            "code_verifier": attempt.verifier,
        }
        status, content = await self._keys.post(endpoint, *await self._credentials(form))
        if status >= _SERVER_ERROR:
            raise self._failure(f"the token endpoint returned status {status}")
        if status != _OK:
            raise UnauthenticatedError(f"The identity provider refused: {_error_code(content)}")
        token = content.get("id_token")
        if not isinstance(token, str):
            raise UnauthenticatedError("The identity provider sent no ID token: is openid a scope?")
        return token

    async def _credentials(
        self, form: dict[str, str]
    ) -> tuple[dict[str, str], tuple[str, str] | None]:
        """Return the form, and the client's credentials in it or as user and password."""
        client = self.client
        document = await self._keys.document()
        methods = document.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
        if client.secret is None:
            return {**form, "client_id": client.client_id}, None
        if "client_secret_basic" in methods:
            return form, (quote(client.client_id, safe=""), quote(client.secret, safe=""))
        return {**form, "client_id": client.client_id, "client_secret": client.secret}, None

    async def _endpoint(self, name: str) -> str:
        url = (await self._keys.document()).get(name)
        if not isinstance(url, str) or not is_protected(url):
            raise self._failure(f"its {name} is missing, or is not https")
        return url

    def _failure(self, reason: str) -> ServiceUnavailableError:
        return ServiceUnavailableError(f"The identity provider {self.issuer}: {reason}")


def _error_code(answer: Mapping[str, Any]) -> str:
    """Return the code of an error, such as ``access_denied``, without its untrusted text."""
    code = str(answer.get("error", ""))[:_LONGEST_ERROR]
    is_plain = code.isascii() and code.replace("_", "").isalnum()
    return code if is_plain else "no reason is given"
