"""The catalog page in a real browser: every page, signing in, keyboard, accessibility."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Route, expect
from server.ui.chromium import (
    DESKTOP,
    HOSTILE,
    PHONE,
    SignedInPages,
    Tab,
    chromium,
    signed_in_pages,
)

pytestmark = pytest.mark.servers

ARTICLES = "prod/sales/articles"
PAGES = {
    "/ui": 200,
    "/ui/namespace/prod/sales": 200,
    "/ui/namespace/many/db": 200,
    "/ui/namespace/many/db?name=t01&sort=-name": 200,
    "/ui/namespace/dead": 503,
    f"/ui/table/{ARTICLES}": 200,
    f"/ui/rows/{ARTICLES}": 200,
    f"/ui/rows/{ARTICLES}?filter=id+%3C": 200,
    f"/ui/rows/{ARTICLES}?near=row:7&column=embedding": 200,
    f"/ui/rows/{ARTICLES}?text=lamp": 200,
    f"/ui/rows/{ARTICLES}?at=branch:trial": 200,
    f"/ui/rows/{ARTICLES}?columns=id&columns=image": 200,
    f"/ui/column/{ARTICLES}?column=price": 200,
    f"/ui/column/{ARTICLES}?column=title": 200,
    f"/ui/value/{ARTICLES}?column=image&row=7": 200,
    f"/ui/value/{ARTICLES}?column=text&row=7": 200,
    f"/ui/versions/{ARTICLES}": 200,
    f"/ui/versions/{ARTICLES}?branch=trial": 200,
    "/ui/other/prod/sales/invoices": 200,
    f"/ui/connect/{ARTICLES}": 200,
    f"/ui/tag/{ARTICLES}": 200,
    f"/ui/tag/{ARTICLES}?name=x&version=1": 200,
    "/ui/table/prod/sales/orders": 200,
    "/ui/search?q=articles&in=name": 200,
    "/ui/health": 200,
    "/ui/doctor": 200,
    "/ui/account": 200,
    "/ui/table/prod/sales/absent": 404,
}
CONTRAST = "color-contrast"
HEADER_PIXELS = 96
"""The greatest height of the header on a phone."""
HOSTILE_PAGES = [
    *(f"/ui/{page}/prod/hostile/t" for page in ("table", "rows", "versions", "connect")),
    "/ui/namespace/prod/hostile",
    "/ui/other/prod/hostile/other",
]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SignedInPages]:
    with signed_in_pages(tmp_path_factory.mktemp("browser")) as found:
        yield found


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def session(browser: Browser, served: SignedInPages) -> Any:
    """Return the cookies of who has signed in."""
    with browser.new_context() as context:
        Tab(context.new_page(), served.url).sign_in(served.key)
        return context.storage_state()


@pytest.fixture
def visitor(browser: Browser, served: SignedInPages) -> Iterator[Tab]:
    """A tab of somebody who has not signed in. A problem on any of its pages fails the test."""
    with browser.new_context(**_options()) as context:
        tab = Tab(context.new_page(), served.url)
        yield tab
        assert tab.problems == []


@pytest.fixture
def ann(browser: Browser, served: SignedInPages, session: Any) -> Iterator[Tab]:
    """A tab of who may do everything."""
    with browser.new_context(**_options(storage_state=session)) as context:
        tab = Tab(context.new_page(), served.url)
        yield tab
        assert tab.problems == []


def _size(size: tuple[int, int]) -> Any:
    return {"width": size[0], "height": size[1]}


def _options(**more: Any) -> Any:
    # Without transitions, colours are those of the page as soon as a scheme is chosen.
    return {"viewport": _size(DESKTOP), "reduced_motion": "reduce", **more}


def assert_accessible(tab: Tab) -> None:
    """Check a page in light, in dark, and at the width of a phone, where nothing is cut off.

    Of axe's rules, only that of contrast depends on the scheme, and it does not on the width.
    """
    page = tab.page
    page.emulate_media(color_scheme="light")
    assert tab.findings() == []
    page.emulate_media(color_scheme="dark")
    assert tab.findings(runOnly={"type": "rule", "values": [CONTRAST]}) == []
    page.set_viewport_size(_size(PHONE))
    assert tab.findings(rules={CONTRAST: {"enabled": False}}) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE[0]
    header = page.locator("header.top").bounding_box()
    assert header is not None
    assert header["height"] <= HEADER_PIXELS


# -- pages -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("path", "status"), PAGES.items())
def test_every_page_is_accessible_and_without_errors(ann: Tab, path: str, status: int) -> None:
    assert ann.open(path) == status
    assert ann.page.locator("h1").count() == 1
    assert_accessible(ann)


@pytest.mark.parametrize("path", HOSTILE_PAGES)
def test_hostile_names_and_values_run_nothing(ann: Tab, path: str) -> None:
    assert ann.open(path) == 200
    if "versions" not in path and "connect" not in path:
        assert HOSTILE in ann.page.inner_text("main")
    assert ann.page.locator("script").count() == 1
    assert ann.page.locator("img[src=x]").count() == 0
    assert_accessible(ann)


def test_hostile_queries_run_nothing(ann: Tab) -> None:
    for path in ("/ui/search?q=", "/ui/rows/prod/hostile/t?filter=", "/ui/login?next=", "/ui/x/"):
        ann.open(f"{path}%3Cscript%3Ealert(1)%3C/script%3E")
        assert ann.page.locator("script").count() == 1


# -- signing in ------------------------------------------------------------------------------------


def test_who_has_a_key_signs_in_and_out(visitor: Tab, served: SignedInPages) -> None:
    visitor.open(f"/ui/table/{ARTICLES}")
    assert_accessible(visitor)
    page = visitor.page
    page.get_by_label("API key").fill("wrong")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_text("This is not an API key")).to_be_visible()
    assert_accessible(visitor)
    page.get_by_label("API key").fill(served.key)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", name="articles")).to_be_visible()
    page.get_by_role("link", name="ann").click()
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    visitor.open("/ui")
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()


def test_who_has_an_account_at_the_provider_signs_in(visitor: Tab) -> None:
    visitor.open(f"/ui/rows/{ARTICLES}")
    visitor.page.get_by_role("link", name="Sign in with the company account").click()
    expect(visitor.page.get_by_text("Signed in as ann")).to_be_visible()
    assert visitor.page.url.endswith(f"/ui/rows/{ARTICLES}")


def test_scripts_cannot_read_the_session(ann: Tab) -> None:
    ann.open("/ui")
    assert ann.page.evaluate("document.cookie") == ""
    ann.open("/ui/account")
    status = ann.page.evaluate("fetch('/v1/namespace/$/list').then(each => each.status, () => 0)")
    assert status == 0  # the policy of a page without figures lets no script make requests
    ann.problems.clear()  # the browser says so


# -- tasks -----------------------------------------------------------------------------------------


def test_a_table_is_found_and_searched(ann: Tab) -> None:
    page = ann.page
    ann.open("/ui")
    page.keyboard.press("/")
    page.keyboard.type("articles")
    page.keyboard.press("Enter")
    page.get_by_role("main").get_by_role("link", name="articles").first.click()
    page.get_by_role("link", name="Rows").click()
    page.get_by_label("Filter").fill("id = 7")
    page.get_by_label("Filter").press("Enter")
    expect(page.get_by_role("cell", name="Green chair 7", exact=True)).to_be_visible()


def test_the_filter_has_colours_and_completes_columns(ann: Tab) -> None:
    page = ann.page
    ann.open(f"/ui/rows/{ARTICLES}?filter=id+%3E+7")
    field, columns = page.get_by_role("combobox", name="Filter"), page.get_by_role("listbox")
    expect(page.locator(".colours .sql-number")).to_have_text("7")
    field.press("End")
    field.press_sequentially(" and title like 'id' or i")
    expect(page.locator(".colours .sql-string")).to_have_text("'id'")
    expect(page.locator(".colours")).to_have_text("id > 7 and title like 'id' or i")
    expect(columns.get_by_role("option")).to_have_text(["id", "image"])
    assert_accessible(ann)
    field.press("ArrowDown")
    field.press("ArrowDown")
    expect(columns.get_by_role("option", selected=True)).to_have_text("image")
    field.press("Tab")
    expect(field).to_have_value("id > 7 and title like 'id' or image")
    expect(columns).to_be_hidden()
    field.fill("")
    field.press_sequentially("pri")
    field.press("Escape")
    expect(columns).to_be_hidden()
    field.press_sequentially("ce > 100")
    field.press("Enter")
    page.wait_for_url("**price**")
    expect(field).to_have_value("price > 100")


def test_images_are_loaded(ann: Tab) -> None:
    ann.open(f"/ui/rows/{ARTICLES}")
    image = ann.page.locator("td img").first
    expect(image).to_be_visible()
    # wait_for_function polls with eval, which the page's policy forbids.
    expect(image).to_have_js_property("naturalWidth", 24)


def test_a_tag_is_created_and_the_doctor_runs(ann: Tab) -> None:
    page = ann.page
    ann.open(f"/ui/versions/{ARTICLES}")
    page.get_by_role("link", name="Create a tag").click()
    page.get_by_label("Name", exact=True).fill("of-the-browser")
    page.get_by_label("Version").fill("2")
    page.get_by_role("button", name="Continue").click()
    page.get_by_role("button", name="Create the tag").click()
    expect(page.get_by_role("link", name="of-the-browser")).to_be_visible()
    ann.open("/ui/health")
    page.get_by_role("link", name="Run the doctor on the catalogs").click()
    page.get_by_role("button", name="Run the doctor").click()
    expect(page.get_by_role("link", name="Run it again")).to_be_visible(timeout=60_000)
    assert_accessible(ann)


def test_the_keyboard_leads_past_the_navigation(ann: Tab) -> None:
    ann.open(f"/ui/table/{ARTICLES}")
    ann.page.keyboard.press("Tab")
    expect(ann.page.get_by_role("link", name="Skip to the content")).to_be_focused()
    ann.page.keyboard.press("Enter")
    assert ann.page.evaluate("document.activeElement.id") == "main"
    ann.page.keyboard.press("Tab")
    assert ann.page.evaluate("document.querySelector('main').contains(document.activeElement)")


def test_figures_are_filled_in_and_sorted(ann: Tab) -> None:
    page = ann.page
    ann.open("/ui/namespace/prod/sales")
    rows = page.get_by_role("region", name="List of tables").locator("tbody tr")
    articles = rows.filter(has=page.get_by_role("link", name="articles", exact=True))
    expect(articles.get_by_role("cell", name="75", exact=True)).to_be_visible()
    expect(rows.filter(has_text="orders")).to_contain_text("no data yet")
    page.get_by_role("button", name="Rows").click()
    expect(page.locator("th[data-sort=rows]")).to_have_attribute("aria-sort", "descending")
    expect(rows.first).to_contain_text("articles")
    page.get_by_role("button", name="Rows").click()
    expect(page.locator("th[data-sort=rows]")).to_have_attribute("aria-sort", "ascending")
    expect(rows.first).to_contain_text("articles")  # the others have no figures
    assert_accessible(ann)


def test_counts_of_catalogs_are_filled_in(ann: Tab) -> None:
    ann.open("/ui")
    many = ann.page.get_by_role("region", name="Catalogs").locator("tr").filter(has_text="many")
    expect(many.get_by_role("cell", name="130", exact=True)).to_be_visible()


@pytest.mark.parametrize(("headers", "requests"), [({}, 1), ({"Retry-After": "0.01"}, 5)])
def test_counts_are_requested_again_if_the_server_says_when(
    ann: Tab, headers: dict[str, str], requests: int
) -> None:
    found: list[str] = []

    def refuse(route: Route) -> None:
        found.append(route.request.url)
        route.fulfill(status=503, headers=headers)

    ann.page.route("**/ui/counts/many", refuse)
    ann.open("/ui")
    many = ann.page.get_by_role("region", name="Catalogs").locator("tr").filter(has_text="many")
    expect(many.locator("[data-figure=tables]")).to_have_text("\N{EN DASH}")
    assert len(found) == requests


def test_tables_are_listed_without_scripts(
    browser: Browser, served: SignedInPages, session: Any
) -> None:
    options = _options(storage_state=session, java_script_enabled=False)
    with browser.new_context(**options) as context:
        tab = Tab(context.new_page(), served.url)
        tab.open("/ui/namespace/prod/sales")
        expect(tab.page.get_by_role("link", name="invoices").last).to_be_visible()
        expect(tab.page.get_by_role("cell", name="Lance").first).to_be_visible()
