"""Signing in to the catalog page by an API key: sessions, their cookies and their ends."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from lance_namespace.errors import InvalidInputError
from server.authenticated import LIST, Clock, Served, serve, serve_settings, write_config
from server.test_audit import lines_of
from server.ui.browsers import Browser, HtmlPage

from lance_bridge_server.access.authentication import ApiKeyFile, ApiKeys, principal_of_key
from lance_bridge_server.access.login import Identity, Seal, Sessions
from lance_bridge_server.config import LoginSettings
from lance_bridge_server.gateway import limits

pytestmark = [pytest.mark.servers, pytest.mark.spec("server.md#signing-in")]


@pytest.fixture
def key(keys: ApiKeyFile) -> str:
    return keys.add("ann", ["analysts"])[0]


@pytest.fixture
def audit(tmp_path: Path) -> Callable[[], list[dict[str, Any]]]:
    """Return a function that returns the lines of the audit log."""
    return lambda: lines_of(tmp_path / "audit.log")


@pytest.fixture
def served(tmp_path: Path, keys: ApiKeyFile, key: str) -> Iterator[Served]:  # noqa: ARG001 - the file
    with serve_with_keys(tmp_path, keys) as found:
        yield found


def serve_with_keys(directory: Path, keys: ApiKeyFile, **settings: Any) -> Any:
    method = {"method": "api_keys", "file": str(keys.path)}
    audit = {"to": str(directory / "audit.log")}
    (directory / "lake").mkdir(exist_ok=True)
    return serve_settings(directory / "lake", authentication=[method], audit=audit, **settings)


@pytest.fixture
def browser(served: Served) -> Browser:
    return Browser(served.url)


# -- signing in and out ----------------------------------------------------------------------------


@pytest.mark.spec("docs/how-to/browse-a-catalog.md#use-it-elsewhere")
def test_who_has_a_key_signs_in_and_comes_to_the_page_asked_for(
    browser: Browser, key: str, served: Served
) -> None:
    form = browser.get("/ui/search?q=a%2Fb&in=name")
    assert form.url.path == "/ui/login"
    page = browser.submit(form, "/ui/login", key=key)
    assert (page.status_code, page.url.path) == (200, "/ui/search")
    assert page.url.query == b"q=a%2Fb&in=name"
    assert "Signed in as ann" in HtmlPage.of(page.text).text
    assert browser.get("/ui").status_code == 200
    assert (served.last.name, set(served.last.groups)) == ("ann", {"analysts"})
    assert served.last.method == "api_key"


def test_a_wrong_key_is_refused_at_its_field(
    browser: Browser, key: str, audit: Callable[[], Any]
) -> None:
    for wrong in (f"{key[:-1]}{'a' if key[-1] != 'a' else 'b'}", "no-such-key", ""):
        page = browser.sign_in(wrong)
        assert page.status_code == 401
        assert "key-problem" in page.text
        assert not wrong or wrong not in page.text
    assert browser.get("/ui").url.path == "/ui/login"
    refused = [each for each in audit() if each.get("action") == "login"]
    assert [(each["decision"], each["code"]) for each in refused] == [("deny", 16)] * 3


def test_who_signs_out_has_no_session(browser: Browser, key: str, audit: Callable[[], Any]) -> None:
    browser.sign_in(key)
    first = browser.cookie("session")
    assert browser.sign_out().url.path == "/ui/login"
    assert browser.get("/ui/account").url.path == "/ui/login"
    browser.sign_in(key)
    assert browser.cookie("session") != first
    actions = [(each.get("action"), each["principal"]) for each in audit()]
    assert {("login", "ann"), ("logout", "ann")} <= set(actions)
    assert key not in json.dumps(audit())


# -- cookies ---------------------------------------------------------------------------------------


def test_a_cookie_is_for_the_page_alone_and_has_no_key(
    browser: Browser, key: str, served: Served
) -> None:
    form = browser.get("/ui")
    answer = browser.http.post(
        f"{served.url}/ui/login",
        data={"key": key, "token": _token(form), "next": ""},
    )
    [cookie] = [each for each in answer.headers.get_list("set-cookie") if "session=" in each]
    attributes = {each.strip().lower() for each in cookie.split(";")[1:]}
    assert {"httponly", "path=/ui", "samesite=lax", "max-age=3600"} <= attributes
    assert "secure" not in attributes  # plain HTTP on this machine
    secret = key.split("_", 2)[2]
    assert secret not in cookie
    assert browser.http.get(f"{served.url}{LIST}").status_code == 401


def test_a_cookie_is_secure_unless_it_is_of_this_machine(tmp_path: Path, keys: ApiKeyFile) -> None:
    keys.add("ann")
    address = "https://lake.example.com"
    with serve_with_keys(tmp_path, keys, login={"address": address}) as served:
        form = httpx.get(f"{served.url}/ui/login")
        [cookie] = form.headers.get_list("set-cookie")
    assert cookie.startswith("__Secure-lance_bridge_form=")
    assert "; secure" in cookie.lower()


@pytest.mark.parametrize("spoil", [lambda text: text[:-4] + "AAAA", lambda _: "x", lambda _: "a.b"])
def test_a_changed_cookie_is_no_session(browser: Browser, key: str, spoil: Any) -> None:
    browser.sign_in(key)
    cookie = browser.cookie("session")
    assert browser.get("/ui/account").url.path == "/ui/account"
    for_forms = _token(Browser(browser.url).get("/ui"))
    for wrong in (spoil(cookie), for_forms):
        browser.http.cookies.clear()
        browser.http.cookies.set("lance_bridge_session", wrong)
        assert browser.get("/ui/account").url.path == "/ui/login"


# -- the end of sessions ---------------------------------------------------------------------------


def test_a_revoked_key_ends_its_sessions(browser: Browser, keys: ApiKeyFile, key: str) -> None:
    browser.sign_in(key)
    keys.revoke(key.split("_")[1])
    assert browser.get("/ui/account").url.path == "/ui/login"


def test_an_expired_key_ends_its_sessions(browser: Browser, keys: ApiKeyFile) -> None:
    key, entry = keys.add("bob", lifetime=timedelta(hours=1))
    browser.sign_in(key)
    assert browser.get("/ui/account").url.path == "/ui/account"
    content = json.loads(keys.path.read_text())
    for each in content["keys"]:
        if each["id"] == entry.id:
            each["expires"] = each["created"]
    keys.path.write_text(json.dumps(content))
    assert browser.get("/ui/account").url.path == "/ui/login"


def test_groups_are_those_that_the_key_has_now(
    browser: Browser, keys: ApiKeyFile, key: str
) -> None:
    browser.sign_in(key)
    keys.path.write_text(keys.path.read_text().replace("analysts", "auditors"))
    assert "auditors" in browser.get("/ui/account").text


def test_a_session_ends_in_time(keys: ApiKeyFile, key: str) -> None:
    clock = Clock()
    sessions = sessions_at(clock, keys)
    cookie = sessions.begin(identity(keys, key))
    clock.now = 99
    assert sessions.find(cookie) is not None
    clock.now = 100
    assert sessions.find(cookie) is None


def test_a_session_that_is_used_goes_on(keys: ApiKeyFile, key: str) -> None:
    clock = Clock()
    sessions = sessions_at(clock, keys)
    cookie = sessions.begin(identity(keys, key))
    found = sessions.find(cookie)
    assert found is not None
    assert found.renewed is None
    for clock.now in range(90, 1000, 90):
        found = sessions.find(cookie)
        assert found is not None
        cookie = found.renewed or cookie
    clock.now = 1000
    assert sessions.find(cookie) is None


def test_worker_processes_share_sessions(tmp_path: Path, keys: ApiKeyFile, key: str) -> None:
    (tmp_path / "lake").mkdir()
    config = write_config(
        tmp_path,
        catalogs={"lake": {"impl": "dir", "root": str(tmp_path / "lake")}},
        listeners=[{"port": 0}],
        authentication=[{"method": "api_keys", "file": str(keys.path)}],
        workers=2,
    )
    with serve("--config", str(config)) as program:
        browser = Browser(program.url)
        browser.sign_in(key)
        paths = set()
        for _ in range(12):  # each by a connection of its own, which any of the processes takes
            browser.http.close()
            cookies = browser.http.cookies
            browser.http = httpx.Client(cookies=cookies, timeout=30)
            paths.add(browser.get("/ui/account").url.path)
    assert paths == {"/ui/account"}


@pytest.mark.parametrize("content", ["", "x", "AAAA", "A" * 43 + "=\nAAAA"])
def test_a_file_of_keys_that_cannot_be_used_is_refused(tmp_path: Path, content: str) -> None:
    file = tmp_path / "session.keys"
    file.write_text(content)
    with pytest.raises(InvalidInputError, match=r"session\.keys must have 32 random bytes"):
        LoginSettings(key_file=file).read_keys()
    with pytest.raises(InvalidInputError, match=r"absent cannot be read"):
        LoginSettings(key_file=tmp_path / "absent").read_keys()


def test_keys_of_the_configuration_are_replaced_without_an_end_of_sessions(
    tmp_path: Path, keys: ApiKeyFile, key: str
) -> None:
    first, second = ("A" * 43 + "=", "B" * 42 + "A=")
    file = tmp_path / "session.keys"
    cookie = ""
    found = []
    for lines in (f"{first}\n", f"{second}\n{first}\n", f"{second}\n"):
        file.write_text(lines)
        with serve_with_keys(tmp_path, keys, login={"key_file": str(file)}) as served:
            browser = Browser(served.url)
            if not cookie:
                browser.sign_in(key)
                cookie = browser.cookie("session")
            browser.http.cookies.set("lance_bridge_session", cookie)
            found.append(browser.get("/ui/account").url.path)
    assert found == ["/ui/account", "/ui/account", "/ui/login"]


# -- other sites -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_pages_of_other_sites_sign_nobody_in(
    browser: Browser, key: str, headers: dict[str, str]
) -> None:
    fields = {"key": key, "token": _token(browser.get("/ui"))}
    answer = browser.http.post(f"{browser.url}/ui/login", data=fields, headers=headers)
    assert answer.status_code == 403


def test_a_form_without_the_token_of_its_browser_is_refused(browser: Browser, key: str) -> None:
    other = _token(Browser(browser.url).get("/ui"))
    browser.get("/ui")
    for token in ("", "x", other):
        answer = browser.http.post(f"{browser.url}/ui/login", data={"key": key, "token": token})
        assert answer.status_code == 403
    browser.sign_in(key)
    page = browser.http.post(f"{browser.url}/ui/logout", data={"token": other})
    assert page.status_code == 403
    assert browser.get("/ui/account").url.path == "/ui/account"


def test_a_cookie_of_other_characters_is_refused(browser: Browser, key: str) -> None:
    fields = {"key": key, "token": _token(browser.get("/ui"))}
    headers = {b"cookie": "lance_bridge_form=é".encode()}
    answer = httpx.post(f"{browser.url}/ui/login", data=fields, headers=headers)
    assert answer.status_code == 403


@pytest.mark.parametrize("host", ["[", "a]", "[x]", "a b", "é".encode()])
def test_a_malformed_host_is_no_failure(browser: Browser, host: Any) -> None:
    for path in ("/ui/login", "/ui"):
        assert httpx.get(f"{browser.url}{path}", headers={"host": host}).status_code in (200, 303)


@pytest.mark.parametrize(
    "target",
    [
        "https://evil.example/ui",
        "//evil.example/ui",
        "/\\evil.example",
        "/ui/../v1/namespace/$/list",
        "/ui/%2e%2e/v1",
        "/uix",
        "javascript:alert(1)",
        "/ui/\r\nLocation: x",
    ],
)
def test_a_login_leads_to_no_other_site(browser: Browser, key: str, target: str) -> None:
    form = browser.get("/ui")
    fields = {"key": key, "token": _token(form), "next": target}
    answer = browser.http.post(f"{browser.url}/ui/login", data=fields)
    assert (answer.status_code, answer.headers["location"]) == (303, "/ui")


# -- limits ----------------------------------------------------------------------------------------


def test_attempts_that_fail_are_limited(tmp_path: Path, keys: ApiKeyFile, key: str) -> None:
    with serve_with_keys(tmp_path, keys, login={"failures": "2/hour"}) as served:
        browser = Browser(served.url)
        answers = [browser.sign_in("lbk_x") for _ in range(3)]
        assert [each.status_code for each in answers] == [401, 401, 429]
        assert int(answers[-1].headers["retry-after"]) > 0
        assert browser.sign_in("no-such-key").status_code == 429
        # Behind a proxy, all users have the same address: failures must not keep others out.
        assert browser.sign_in(key).status_code == 200


def test_signing_in_as_another_leaves_no_request_counted(
    browser: Browser, keys: ApiKeyFile, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "_CONCURRENT_REQUESTS", 1)
    other, _ = keys.add("bob", [])
    assert browser.sign_in(key).status_code == 200
    assert browser.sign_in(other, "/ui/login").status_code == 200
    browser.sign_out()
    assert browser.sign_in(key).status_code == 200
    assert browser.get("/ui/account").status_code == 200


def test_a_form_that_is_too_large_is_refused(browser: Browser) -> None:
    form = browser.get("/ui")
    assert browser.submit(form, "/ui/login", key="x" * 20_000).status_code == 400


def sessions_at(clock: Clock, keys: ApiKeyFile) -> Sessions:
    """Return sessions of 1000 seconds, and 100 without a request."""
    return Sessions(Seal([bytes(32)], clock), [ApiKeys(keys)], [], 1000, 100)


def identity(keys: ApiKeyFile, key: str) -> Identity:
    entry = ApiKeys(keys).find(key)
    return Identity("api_key", entry.id, principal_of_key(entry))


def _token(page: httpx.Response) -> str:
    tags = HtmlPage.of(page.text).tags
    [found] = [each["value"] for _, each in tags if each.get("name") == "token"]
    return found
