"""Tokens of an identity provider: claims, keys that are rolled over, and providers down."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, OctKey, RSAKey
from lance_namespace.errors import ServiceUnavailableError, UnauthenticatedError

from lance_bridge_server.access.authentication import AuthenticatorChain
from lance_bridge_server.access.oidc import KeyLifetimes, OidcTokens, ProviderKeys, public_keys

from .authenticated import (
    AUDIENCE,
    LIST,
    SHAPES,
    Clock,
    IdentityProvider,
    Served,
    children,
    identity_provider,
    serve_settings,
)

pytestmark = [pytest.mark.servers, pytest.mark.spec("server.md#openid-connect")]


@pytest.fixture(scope="module")
def okta() -> Iterator[IdentityProvider]:
    with identity_provider("okta") as found:
        yield found


@pytest.fixture(scope="module")
def served(okta: IdentityProvider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    method = {"method": "oidc", "issuer": okta.issuer, "audiences": [AUDIENCE, "other"]}
    directory = tmp_path_factory.mktemp("lake")
    with serve_settings(directory, authentication=[method]) as found:
        yield found


def ask(served: Served, token: str) -> tuple[int, int | None, str]:
    """Return the status, and the code and text of an error."""
    answer = httpx.get(f"{served.url}{LIST}", headers={"Authorization": f"Bearer {token}"})
    assert token not in answer.text
    content = answer.json()
    return answer.status_code, content.get("code"), content.get("error", "")


def require_refused(
    served: Served, token: str, text: str, code: tuple[int, int] = (401, 16)
) -> None:
    """Check that a token is answered by an error with a text."""
    found = ask(served, token)
    assert found[:2] == code, found
    assert text in found[2]


@pytest.mark.spec("server.md#authentication")
@pytest.mark.parametrize("shape", SHAPES)
def test_tokens_of_providers_are_taken(shape: str, tmp_path: Path) -> None:
    with identity_provider(shape) as provider:
        method = {"method": "oidc", "issuer": provider.issuer, "audiences": [AUDIENCE]}
        with serve_settings(tmp_path, authentication=[method]) as served:
            token = provider.token(sub="ann", groups=["x", "y"])
            assert children(served.url, **{"header.Authorization": f"Bearer {token}"}) == []
            assert (served.last.name, set(served.last.groups)) == ("ann", {"x", "y"})
            assert (served.last.method, served.last.token) == ("oidc", token)
            assert served.last.claims["aud"] == AUDIENCE
            assert token not in repr(served.last)
            assert ask(served, provider.token(header={"kid": "for-encryption"}))[:2] == (401, 16)


@pytest.mark.spec("server.md#authentication")
def test_a_token_works_as_an_api_key_too(served: Served, okta: IdentityProvider) -> None:
    assert children(served.url, **{"header.x-api-key": okta.token(sub="eve")}) == []
    assert served.last.name == "eve"


def seconds(ahead: int) -> int:
    return int(time.time()) + ahead


def at_times(claims: dict[str, Any]) -> dict[str, Any]:
    """Return claims with times where they have seconds from now."""
    return {key: seconds(each) if isinstance(each, int) else each for key, each in claims.items()}


@pytest.mark.parametrize(
    ("claims", "text"),
    [
        ({"exp": -4000}, "has expired"),
        ({"exp": None}, "'exp'"),
        ({"exp": "soon"}, "'exp'"),
        ({"nbf": 4000}, "'nbf'"),
        ({"iat": 4000}, "'iat'"),
        ({"aud": "another"}, "'aud'"),
        ({"aud": ["another"]}, "'aud'"),
        ({"aud": None}, "'aud'"),
        ({"iss": "https://elsewhere"}, "does not accept API keys or tokens of this form"),
        ({"iss": None}, "does not accept API keys or tokens of this form"),
        ({"sub": None}, "the user name in them is not"),
        ({"sub": ""}, "the user name in them is not"),
        ({"sub": "a\nb"}, "the user name in them is not"),
        ({"sub": ["ann"]}, "'sub'"),
    ],
    ids=str,
)
def test_a_token_with_wrong_claims_is_refused(
    served: Served, okta: IdentityProvider, claims: dict[str, Any], text: str
) -> None:
    require_refused(served, okta.token(**at_times(claims)), text)


@pytest.mark.parametrize("claims", [{"exp": -1}, {"nbf": 20}, {"aud": ["x", "other"]}], ids=str)
def test_clocks_may_differ_and_audiences_be_several(
    served: Served, okta: IdentityProvider, claims: dict[str, Any]
) -> None:
    assert ask(served, okta.token(**at_times(claims)))[0] == 200


def forged(okta: IdentityProvider, header: dict[str, Any], secret: bytes | None) -> str:
    """Return a token that is not signed, or signed with a secret that everyone knows."""
    claims = okta.token().split(".")[1]
    first = base64.urlsafe_b64encode(json.dumps(header).encode()).rstrip(b"=").decode()
    if secret is None:
        return f"{first}.{claims}."
    signature = hmac.new(secret, f"{first}.{claims}".encode(), hashlib.sha256).digest()
    return f"{first}.{claims}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"


def published(okta: IdentityProvider) -> list[dict[str, Any]]:
    keys = httpx.get(f"{okta.issuer}/v1/keys").json()["keys"]
    assert keys[-1]["kty"] == "oct"
    return list(keys)


def test_no_token_is_taken_that_anybody_can_sign(served: Served, okta: IdentityProvider) -> None:
    public, shared = published(okta)
    found = public_keys({"keys": [public]})[public["kid"]]
    pem = found.as_pem(private=False)
    for kid in (public["kid"], "shared", None):
        for algorithm in ("none", "None", "HS256", "", None):
            header = {"alg": algorithm, "kid": kid}
            for secret in (None, pem, base64.urlsafe_b64decode(shared["k"] + "=")):
                token = forged(okta, header, secret)
                assert ask(served, token)[:2] == (401, 16), header
    shared_secret = OctKey.import_key(shared)
    claims = {"iss": okta.issuer, "aud": AUDIENCE, "sub": "ann", "exp": seconds(300)}
    token = jwt.encode({"alg": "HS256", "kid": "shared"}, claims, shared_secret)
    assert ask(served, token)[:2] == (401, 16)
    assert ask(served, jwt.encode({"alg": "RS256"}, claims, unknown_key()))[:2] == (401, 16)
    require_refused(served, okta.token(header={"alg": "RS512"}), "algorithm that is not allowed")
    require_refused(served, okta.token(header={"alg": "PS256"}), "algorithm that is not its key's")
    other = jwt.encode({"alg": "ES256", "kid": public["kid"]}, claims, ECKey.generate_key())
    assert ask(served, other)[:2] == (401, 16)


@pytest.mark.parametrize("use", [{}, {"use": "sig"}])
def test_only_public_keys_for_signatures_are_kept(use: dict[str, str]) -> None:
    public = {**RSAKey.generate_key(2048).as_dict(private=False), "kid": "public"}
    others = [
        {**public, "kid": "for-encryption", "use": "enc"},
        {"kty": "oct", "kid": "shared", "k": "c2VjcmV0LXNlY3JldC1zZWNyZXQ"},
        {"kty": "AKP", "kid": "of-a-new-type"},
        {"kty": "RSA", "kid": "without-numbers"},
        "no-key",
    ]
    assert list(public_keys({"keys": [*others, {**public, **use}]})) == ["public"]
    assert public_keys({"keys": None}) == {}


def unknown_key() -> Any:
    return RSAKey.generate_key(2048)


def test_changed_tokens_are_refused(served: Served, okta: IdentityProvider) -> None:
    header, claims, signature = okta.token().split(".")
    other = okta.token(sub="root").split(".")[1]
    for token in (
        f"{header}.{other}.{signature}",
        f"{header}.{claims}.{signature[:-4]}AAAA",
        f"{header}.{claims}.",
        f"{header}.{claims}",
        f"x.{claims}.{signature}",
        f"{header}.{claims}.{signature}.x.y",
        "..",
    ):
        assert ask(served, token)[:2] == (401, 16), token
    assert ask(served, f"{header}.{claims}.{signature}")[0] == 200


@contextmanager
def served_at(
    directory: Path, shape: str, **options: Any
) -> Iterator[tuple[IdentityProvider, Served, Clock]]:
    """Serve a directory to the tokens of a provider, whose keys age by a clock of the test."""
    clock = Clock()
    with identity_provider(shape) as provider:
        keys = ProviderKeys(provider.issuer, None, KeyLifetimes(3600, 30, 86_400, 5), clock=clock)
        tokens = AuthenticatorChain([OidcTokens(keys, [AUDIENCE], **options)])
        with serve_settings(directory, tokens) as served:
            yield provider, served, clock


def test_keys_are_rolled_over_while_the_server_runs(tmp_path: Path) -> None:
    with served_at(tmp_path, "keycloak") as (provider, served, clock):
        old = provider.token()
        assert ask(served, old)[0] == 200
        provider.rotate()
        new = provider.token()
        assert ask(served, new)[:2] == (401, 16), "not asked again within the cooldown"
        clock.now = 31
        assert ask(served, new)[0] == 200
        assert ask(served, old)[:2] == (401, 16)


def test_a_withdrawn_key_is_no_longer_taken_after_an_hour(tmp_path: Path) -> None:
    with served_at(tmp_path, "google") as (provider, served, clock):
        old = provider.token()
        assert ask(served, old)[0] == 200
        provider.rotate()
        clock.now = 3599
        assert ask(served, old)[0] == 200
        clock.now = 3601
        assert ask(served, old)[:2] == (401, 16)


def test_made_up_keys_do_not_flood_the_provider(tmp_path: Path) -> None:
    with served_at(tmp_path, "okta") as (provider, served, clock):
        assert ask(served, provider.token())[0] == 200
        before = provider.requests
        for step in range(40):
            clock.now = 100 + step
            token = provider.token(header={"kid": f"made-up-{step}"})
            assert ask(served, token)[:2] == (401, 16)
        # Two documents each at 100 and 130 seconds.
        assert provider.requests - before == 4


def test_known_keys_go_on_while_the_provider_is_down(tmp_path: Path) -> None:
    with served_at(tmp_path, "entra") as (provider, served, clock):
        known, unknown = provider.token(exp=seconds(100)), provider.token(retired=True)
        assert ask(served, known)[0] == 200
        provider.stop()
        assert ask(served, unknown)[:2] == (401, 16), "it has just said that it has no such key"
        clock.now = 4000
        assert ask(served, known)[0] == 200
        require_refused(served, unknown, "does not respond", (503, 17))
        clock.now = 86_500
        assert ask(served, known)[:2] == (503, 17)


def test_a_provider_that_never_answered_makes_tokens_unavailable(tmp_path: Path) -> None:
    with served_at(tmp_path, "okta") as (provider, served, _):
        token = provider.token()
        provider.stop()
        assert ask(served, token)[:2] == (503, 17)
        with pytest.raises(ServiceUnavailableError, match="does not respond"):
            children(served.url, **{"header.Authorization": f"Bearer {token}"})


def test_claims_for_names_and_groups_are_configured(tmp_path: Path) -> None:
    options = {
        "name_claim": "email",
        "groups_claim": "realm_access.roles",
        "claims": {"hd": "example.com"},
    }
    with served_at(tmp_path, "google", **options) as (provider, served, _):
        right: dict[str, Any] = {"email": "ann@example.com", "hd": "example.com"}
        roles = {"roles": ["x", 5]}
        assert ask(served, provider.token(**right, realm_access=roles))[0] == 200
        assert (served.last.name, set(served.last.groups)) == ("ann@example.com", {"x"})
        assert ask(served, provider.token(**{**right, "realm_access.roles": "y"}))[0] == 200
        assert served.last.groups == {"y"}
        wrongs: list[dict[str, Any]] = [{"email": "a@b.com"}, {**right, "hd": "other.com"}]
        for wrong in wrongs:
            require_refused(served, provider.token(**wrong), "'hd'")


@pytest.mark.parametrize("path", ["/nothing", "/v1/keys"])
def test_a_wrong_discovery_document_is_named(okta: IdentityProvider, path: str) -> None:
    keys = ProviderKeys(okta.issuer, f"{okta.issuer}{path}")
    with pytest.raises(ServiceUnavailableError, match=f"{okta.issuer}{path} cannot be read"):
        anyio.run(keys.fetch)
    with pytest.raises(ServiceUnavailableError, match="it is not https"):
        anyio.run(ProviderKeys("http://example.com").fetch)


def test_a_discovery_document_without_keys_is_named(
    okta: IdentityProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def get(*_: object) -> dict[str, str]:
        return {"issuer": okta.issuer}

    monkeypatch.setattr(ProviderKeys, "_get", get)
    with pytest.raises(ServiceUnavailableError, match=f"{okta.issuer}.*it has no jwks_uri"):
        anyio.run(ProviderKeys(okta.issuer).fetch)


def test_a_token_without_a_key_identifier_needs_a_provider_with_one_key(
    served: Served, okta: IdentityProvider
) -> None:
    assert ask(served, okta.token(header={"kid": None}))[0] == 200
    with pytest.raises(UnauthenticatedError):
        children(served.url)


@pytest.mark.parametrize("kind", ["logout+jwt", "dpop+jwt"])
def test_a_token_of_another_type_does_not_sign_in(
    served: Served, okta: IdentityProvider, kind: str
) -> None:
    assert ask(served, okta.token(header={"typ": kind}))[:2] == (401, 16)
    for known in ("JWT", "at+jwt", "application/at+JWT", None):
        assert ask(served, okta.token(header={"typ": known}))[0] == 200
