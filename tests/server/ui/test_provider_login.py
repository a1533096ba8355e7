"""Signing in to the catalog page at an identity provider."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx
import pytest
from server.authenticated import (
    LIST,
    SHAPES,
    IdentityProvider,
    Served,
    identity_provider,
    serve_settings,
)
from server.ui.browsers import Browser, HtmlPage

pytestmark = [pytest.mark.servers, pytest.mark.spec("server.md#signing-in")]

CLIENT, SECRET = "lance-ui", "s3cret/with+signs"


@pytest.fixture(scope="module")
def provider() -> Iterator[IdentityProvider]:
    with identity_provider("keycloak") as found:
        found.add_client(CLIENT, SECRET)
        yield found


@pytest.fixture(autouse=True)
def _usual_logins(provider: IdentityProvider) -> None:
    provider.set_login()


@pytest.fixture(scope="module")
def served(
    provider: IdentityProvider, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    directory = tmp_path_factory.mktemp("provider")
    (directory / "secret").write_text(f"{SECRET}\n")
    with serve_with_provider(
        directory, provider, client_secret_file=str(directory / "secret")
    ) as found:
        yield found


def serve_with_provider(
    directory: Path, provider: IdentityProvider, limits: dict[str, str] | None = None, **login: Any
) -> Any:
    method = {
        "method": "oidc",
        "issuer": provider.issuer,
        "audiences": ["lance"],
        "login": {"client_id": CLIENT, **login},
    }
    return serve_settings(directory, authentication=[method], login=limits or {})


@pytest.fixture
def browser(served: Served) -> Browser:
    return Browser(served.url)


def start(browser: Browser, page: str = "/ui") -> str:
    """Return the link to the provider on the page for signing in."""
    links = HtmlPage.of(browser.get(page).text).links
    return next(target for label, target in links.items() if label.startswith("Sign in with"))


def callback(browser: Browser) -> str:
    """Return the address that the provider sends the browser back to, without following it."""
    at_provider = browser.http.get(f"{browser.url}{start(browser)}").headers["location"]
    return str(browser.http.get(at_provider).headers["location"])


# -- signing in ------------------------------------------------------------------------------------


@pytest.mark.spec("docs/how-to/browse-a-catalog.md#use-it-elsewhere")
def test_who_signs_in_comes_to_the_page_asked_for(
    browser: Browser, provider: IdentityProvider, served: Served
) -> None:
    provider.set_login(sub="eve", groups=["x", "y"], department="film")
    page = browser.get(start(browser, "/ui/search?q=a%2Fb"))
    assert (page.status_code, page.url.path, page.url.query) == (200, "/ui/search", b"q=a%2Fb")
    assert "Signed in as eve" in HtmlPage.of(page.text).text
    browser.get("/ui")
    assert (served.last.name, set(served.last.groups)) == ("eve", {"x", "y"})
    assert (served.last.method, served.last.token) == ("oidc", None)
    assert served.last.claims["department"] == "film"
    assert browser.http.get(f"{served.url}{LIST}").status_code == 401
    assert browser.sign_out().url.path == "/ui/login"
    assert browser.get("/ui/account").url.path == "/ui/login"


@pytest.mark.parametrize(
    ("shape", "secret"), [*zip(SHAPES, (SECRET, SECRET, None, None), strict=True)]
)
def test_providers_and_clients_differ(
    shape: str, secret: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UI_SECRET", secret or "")
    login: dict[str, Any] = {"client_secret_env": "UI_SECRET"} if secret else {}
    with identity_provider(shape) as provider:
        provider.add_client(CLIENT, secret)
        with serve_with_provider(tmp_path, provider, **login) as served:
            browser = Browser(served.url)
            page = browser.get(start(browser))
            assert "Signed in as ann" in HtmlPage.of(page.text).text


def test_a_request_to_the_provider_has_what_protects_the_login(browser: Browser) -> None:
    answer = browser.http.get(f"{browser.url}{start(browser)}")
    query = dict(parse_qsl(urlsplit(answer.headers["location"]).query))
    assert query["response_type"] == "code"
    assert query["code_challenge_method"] == "S256"
    assert query["redirect_uri"] == f"{browser.url}/ui/login/callback"
    assert min(len(query[each]) for each in ("state", "nonce", "code_challenge")) >= 43
    assert SECRET not in answer.headers["location"]
    cookie = browser.cookie("login")
    assert query["state"] not in cookie
    assert query["nonce"] not in cookie


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "claims",
    [
        {"nonce": "of-another-login"},
        {"nonce": None},
        {"aud": "lance"},
        {"aud": [CLIENT, "lance"], "azp": "another"},
        {"iss": "https://evil.example"},
        {"exp": 1000},
        {"sub": ""},
    ],
)
def test_a_token_that_is_not_for_this_login_is_refused(
    browser: Browser, provider: IdentityProvider, claims: dict[str, Any]
) -> None:
    provider.set_login(**claims)
    assert browser.get(start(browser)).status_code == 401
    assert browser.get("/ui/account").url.path == "/ui/login"


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ({"state": "of-another-login"}, "belongs to another attempt"),
        ({"iss": "https://evil.example"}, "another identity provider"),
        ({"code": "", "error": "access_denied"}, "access_denied"),
        ({"code": "", "error": "<script>alert(1)"}, "no reason is given"),
        ({"code": "unknown"}, "invalid_grant"),
    ],
)
def test_a_callback_that_is_no_answer_to_this_login_is_refused(
    browser: Browser, provider: IdentityProvider, answer: dict[str, str], text: str
) -> None:
    provider.set_login(answer)
    page = browser.get(start(browser))
    assert page.status_code == 401
    assert text in page.text
    assert browser.get("/ui/account").url.path == "/ui/login"


def test_a_callback_in_another_browser_signs_nobody_in(browser: Browser) -> None:
    answer = callback(browser)
    assert Browser(browser.url).get(answer).status_code == 401
    victim = Browser(browser.url)
    callback(victim)
    assert victim.get(answer).status_code == 401


def test_a_callback_counts_once(browser: Browser) -> None:
    answer = callback(browser)
    assert browser.get(answer).status_code == 200
    assert browser.get(answer).status_code == 401


def test_only_callbacks_with_an_attempt_count_as_failed_attempts(
    provider: IdentityProvider, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text(SECRET)
    limit = {"failures": "2/hour"}
    with serve_with_provider(
        tmp_path, provider, limit, client_secret_file=str(tmp_path / "secret")
    ) as served:
        browser = Browser(served.url)
        answers = [browser.get("/ui/login/callback?state=x").status_code for _ in range(3)]
        for _ in range(3):
            callback(browser)
            answers.append(browser.get("/ui/login/callback?state=x").status_code)
        assert answers == [401, 401, 401, 401, 401, 429]
        # Behind a proxy, all users have the same address: failures must not keep others out.
        assert browser.get(callback(browser)).status_code == 200


def test_an_unknown_provider_is_refused(browser: Browser) -> None:
    assert browser.get("/ui/login/start?issuer=https://evil.example").status_code == 400


def test_a_login_leads_to_no_other_site(browser: Browser) -> None:
    link = f"{start(browser)}&next=https://evil.example"
    assert browser.get(link).url.path == "/ui"
    assert browser.get(link).url.host == "127.0.0.1"


def test_a_session_that_is_too_long_for_a_cookie_is_refused(
    browser: Browser, provider: IdentityProvider
) -> None:
    provider.set_login(groups=[f"group-{i:032}" for i in range(200)])
    page = browser.get(start(browser))
    assert page.status_code == 400
    assert "too long for a session" in page.text


# -- a provider that fails -------------------------------------------------------------------------


def test_a_provider_that_fails_is_named(browser: Browser, provider: IdentityProvider) -> None:
    provider.set_login(status=500)
    assert browser.get(start(browser)).status_code == 503


def test_a_provider_that_is_down_is_named(tmp_path: Path) -> None:
    with identity_provider("okta") as provider:
        provider.add_client(CLIENT)
        with serve_with_provider(tmp_path, provider) as served:
            browser = Browser(served.url)
            link = start(browser)
            provider.stop()
            page = browser.get(link)
    assert page.status_code == 503
    assert SECRET not in page.text


def test_a_provider_that_fails_is_not_asked_again_for_each_login(
    provider: IdentityProvider, tmp_path: Path
) -> None:
    method = {"method": "oidc", "issuer": provider.issuer, "audiences": ["lance"]}
    wrong = f"{provider.issuer}/no-such-document"
    login = {**method, "discovery": wrong, "login": {"client_id": CLIENT}}
    with serve_settings(tmp_path, authentication=[login]) as served:
        browser = Browser(served.url)
        link = f"{served.url}{start(browser)}"
        before = provider.requests
        with ThreadPoolExecutor(5) as threads:
            statuses = list(threads.map(lambda _: httpx.get(link).status_code, range(10)))
        assert statuses == [503] * 10
        assert provider.requests == before + 1


def test_a_wrong_secret_is_refused(tmp_path: Path, provider: IdentityProvider) -> None:
    (tmp_path / "secret").write_text("wrong")
    with serve_with_provider(
        tmp_path, provider, client_secret_file=str(tmp_path / "secret")
    ) as served:
        browser = Browser(served.url)
        page = browser.get(start(browser))
    assert page.status_code == 401
    assert "invalid_client" in page.text


def test_a_session_ends_when_its_provider_is_taken_away(
    tmp_path: Path, browser: Browser, provider: IdentityProvider
) -> None:
    key_file = tmp_path / "keys"
    key_file.write_text("A" * 43 + "=\n")
    method = {"method": "oidc", "issuer": provider.issuer, "audiences": ["lance"]}
    with identity_provider("okta") as other:
        other.add_client(CLIENT)
        login = {"key_file": str(key_file)}
        left = {**method, "issuer": other.issuer, "login": {"client_id": CLIENT}}
        with serve_settings(tmp_path, authentication=[left], login=login) as served:
            browser = Browser(served.url)
            browser.get(start(browser))
            assert browser.get("/ui/account").status_code == 200
            cookie = browser.cookie("session")
        with serve_settings(tmp_path, authentication=[method], login=login) as served:
            answer = httpx.get(f"{served.url}/ui/account", cookies={"lance_bridge_session": cookie})
            assert answer.status_code == 401
