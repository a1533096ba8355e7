"""Cedar policies: what they decide and why, how they are read, and what they cost."""

from __future__ import annotations

import logging
import os
import re
import threading
from importlib.metadata import EntryPoint
from pathlib import Path

import cedarpy
import pytest
from cli.program import answer_of, run
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis_profiles import examples
from lance_namespace.errors import InvalidInputError
from server.authenticated import write_config
from server.gateways import cedar, memory_namespace

from lance_bridge.catalog import NameRule
from lance_bridge_server.access.authentication import Principal
from lance_bridge_server.access.authorizer import (
    GROUP,
    AllowAll,
    explain,
    explain_request,
    make_authorizer,
)
from lance_bridge_server.access.permissions import (
    SERVER_RIGHTS,
    SET_LOCATION,
    SET_NAMESPACE_LOCATION,
)
from lance_bridge_server.access.policies import GROUPS, CedarAuthorizer, object_entity, schema_text
from lance_bridge_server.operations import OPERATIONS

pytestmark = [
    pytest.mark.quick,
    pytest.mark.spec("server.md#authorization", "server.md#policy-files"),
]

BOB = Principal("bob", frozenset({"analysts"}), "oidc", {"email": "bob@example.com", "exp": 3})
TABLE = ("prod", "sales", "orders")

READERS = """
@id("readers")
permit(principal in Group::"analysts", action in Action::"read", resource in Namespace::"prod");
@id("no-salaries")
forbid(principal, action, resource in Namespace::"prod.salaries");
"""


def test_groups_read_below_a_namespace_unless_that_is_forbidden(tmp_path: Path) -> None:
    authorizer = cedar(tmp_path, READERS)
    decision = authorizer.check(BOB, "query_table", TABLE)
    assert (decision.allowed, decision.reasons) == (True, ("readers",))
    denied = authorizer.check(BOB, "insert_into_table", TABLE)
    assert (denied.allowed, denied.visible, denied.reasons) == (False, True, ())
    hidden = authorizer.check(BOB, "query_table", ("prod", "salaries", "t"))
    assert (hidden.allowed, hidden.visible, hidden.reasons) == (False, False, ("no-salaries",))
    stranger = authorizer.check(Principal("eve"), "query_table", TABLE)
    assert (stranger.allowed, stranger.visible) == (False, False)


@pytest.mark.spec("server.md#hidden-objects")
def test_a_namespace_above_a_named_table_is_visible_and_can_be_listed(tmp_path: Path) -> None:
    text = """@id("one")
    permit(principal, action in Action::"read", resource == Table::"prod.sales.orders");"""
    authorizer = cedar(tmp_path, text)
    for operation, path in [
        ("list_namespaces", ()),
        ("list_namespaces", ("prod",)),
        ("list_tables", ("prod", "sales")),
        ("namespace_exists", ("prod", "sales")),
    ]:
        assert authorizer.check(BOB, operation, path).allowed, operation
    assert not authorizer.check(BOB, "describe_namespace", ("prod",)).allowed
    assert not authorizer.check(BOB, "list_tables", ("prod", "sal")).visible
    assert authorizer.filter(BOB, "list_namespaces", [("prod",), ("pro",)]) == [("prod",)]


@pytest.mark.spec("server.md#hidden-objects")
def test_a_forbidden_listing_is_not_allowed_by_what_is_below(tmp_path: Path) -> None:
    text = """
    permit(principal, action in Action::"read", resource == Table::"prod.t");
    @id("no") forbid(principal, action == Action::"list_tables", resource == Namespace::"prod");
    """
    decision = cedar(tmp_path, text).check(BOB, "list_tables", ("prod",))
    assert (decision.allowed, decision.visible, decision.reasons) == (False, True, ("no",))


def test_claims_and_methods_can_be_conditions(tmp_path: Path) -> None:
    text = """permit(principal, action, resource) when {
        principal.method == "oidc" && principal.hasTag("email")
        && principal.getTag("email") like "*@example.com"
    };"""
    authorizer = cedar(tmp_path, text)
    assert authorizer.check(BOB, "query_table", TABLE).allowed
    assert not authorizer.check(Principal("bob", method="api_key"), "query_table", TABLE).allowed


@pytest.mark.parametrize(
    ("scope", "is_for"),
    [
        ("principal", True),
        ("principal is User", True),
        ('principal == User::"bob"', True),
        ('principal == User::"analysts"', False),
        ('principal in Group::"analysts"', True),
        ('principal in Group::"bob"', False),
        ('principal in User::"bob"', True),
        ('principal is User in Group::"analysts"', True),
        ('principal is User in Group::"others"', False),
    ],
)
def test_every_form_of_a_scope_applies_to_its_principals(
    tmp_path: Path, scope: str, is_for: bool
) -> None:
    permitting = cedar(tmp_path, f"permit({scope}, action, resource);")
    assert permitting.check(BOB, "query_table", TABLE).allowed is is_for
    all_but = f"permit(principal, action, resource); forbid({scope}, action, resource);"
    assert cedar(tmp_path, all_but).check(BOB, "query_table", TABLE).allowed is not is_for


@pytest.mark.spec("server.md#policy-files")
def test_a_policy_that_cannot_be_evaluated_denies(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text = """permit(principal, action, resource);
    @id("overflow") forbid(principal, action, resource) when { 9223372036854775807 + 1 == 0 };"""
    assert not cedar(tmp_path, text).check(BOB, "query_table", TABLE).allowed
    assert "Denied: a policy could not be evaluated" in caplog.text
    assert "overflow" in caplog.text


def test_a_principal_whose_name_is_not_text_is_denied(tmp_path: Path) -> None:
    authorizer = cedar(tmp_path, "permit(principal, action, resource);")
    assert not authorizer.check(Principal("a\ud800"), "query_table", TABLE).allowed


def test_every_operation_is_an_action_of_one_group() -> None:
    lines = [line for line in schema_text().splitlines() if "appliesTo" in line]
    groups = {line.split()[1]: line.split("[")[1].split("]")[0] for line in lines}
    assert len(groups) == len(lines)
    assert set(groups.values()) <= set(GROUPS)
    batches = {"batch_create_table_versions", "batch_commit_tables"}
    assert set(groups) == {each.name for each in OPERATIONS} - batches | {
        SET_LOCATION, SET_NAMESPACE_LOCATION, *SERVER_RIGHTS,
    }  # fmt: skip


# -- names -----------------------------------------------------------------------------------------

ANY_PATH = st.lists(st.text("a.%2E\n", max_size=3), max_size=3).map(tuple)


@given(ANY_PATH, ANY_PATH)
@example(("a.b",), ("a", "b"))
@example(("a%2Eb",), ("a.b",))
@example(("",), ())
def test_different_objects_have_different_ids(one: tuple[str, ...], other: tuple[str, ...]) -> None:
    for is_table in (True, False):
        ids = {object_entity(each, is_table=is_table) for each in (one, other)}
        assert len(ids) == len({one, other})


NAMES = st.sampled_from(["a", "b", "a.b", "%", "", "é", 'x"', "\n", "\\", "$", "\ud800", "*"])


@examples(100, share_fixtures=True)
@given(
    st.sampled_from(["list_namespaces", "list_tables", "list_all_tables"]),
    st.lists(st.lists(NAMES, min_size=1, max_size=3).map(tuple), max_size=6, unique=True),
)
def test_filter_returns_what_check_lets_see(
    tmp_path: Path, operation: str, paths: list[tuple[str, ...]]
) -> None:
    text = """
    permit(principal, action in Action::"see", resource in Namespace::"a");
    permit(principal, action in Action::"see", resource == Table::"b.a%2Eb");
    permit(principal, action in Action::"see", resource == Namespace::"%.é");
    permit(principal, action, resource) when { resource.name == "x\\"" };
    forbid(principal, action, resource in Namespace::"a.b");
    """
    authorizer = cedar(tmp_path, text)
    describe = "describe_namespace" if operation == "list_namespaces" else "describe_table"
    seen = [each for each in paths if authorizer.check(BOB, describe, each).visible]
    assert list(authorizer.filter(BOB, operation, paths)) == seen


# -- files -----------------------------------------------------------------------------------------


ALL = "permit(principal, action, resource)"


@pytest.mark.spec("server.md#policy-files")
@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("// one\n\npermit(principal,\n", "line 3: "),
        (
            f'{ALL};\n\n@id("x;//")\npermit(principal, action in Action::"reed", resource);',
            "line 3 (policy 'x;//'): unrecognized action",
        ),
        (f"{ALL} when {{ principal.age > 3 }};", "line 1: attribute `age`"),
        (f'@id("x") {ALL};\n@id("x") {ALL};', "line 2 (policy 'x'): "),
        ("permit(principal == ?principal, action, resource);", "line 1: a policy with ?principal"),
    ],
)
def test_problems_name_file_line_and_policy(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        cedar(tmp_path, text)
    assert str(tmp_path / "policies.cedar") in str(caught.value)
    assert problem in str(caught.value)


@pytest.mark.spec("server.md#policy-files")
def test_all_problems_of_a_directory_are_reported(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"has no file \*\.cedar"):
        CedarAuthorizer(tmp_path)
    (tmp_path / "a.cedar").write_text("permit(principal);")
    (tmp_path / "b.cedar").write_text("allow(principal, action, resource);")
    (tmp_path / "c.txt").write_text("not a policy")
    with pytest.raises(InvalidInputError, match=r"(?s)a\.cedar, line 1.*b\.cedar, line 1"):
        CedarAuthorizer(tmp_path)


@pytest.mark.spec("server.md#policy-files")
def test_policies_without_an_id_are_named_by_their_place(tmp_path: Path) -> None:
    authorizer = cedar(tmp_path, "// first\npermit(principal, action, resource);")
    assert authorizer.check(BOB, "query_table", TABLE).reasons == ("policies.cedar:2",)


@pytest.mark.spec("server.md#policy-files")
def test_changed_policies_apply_without_a_restart_unless_they_are_broken(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authorizer = cedar(tmp_path, "permit(principal, action, resource);", check_seconds=0)
    _replace(tmp_path / "policies.cedar", "permit(principal, action, resourc);")
    with caplog.at_level(logging.ERROR):
        assert authorizer.check(BOB, "query_table", TABLE).allowed
        authorizer.check(BOB, "query_table", TABLE)
    assert "policies.cedar, line 1" in str(authorizer.problem)
    assert len(caplog.records) == 1
    _replace(tmp_path / "policies.cedar", "forbid(principal, action, resource);")
    assert not authorizer.check(BOB, "query_table", TABLE).allowed
    assert authorizer.problem is None


def test_a_directory_that_became_unreadable_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.cedar").write_text("permit(principal, action, resource);")
    authorizer = CedarAuthorizer(tmp_path, check_seconds=0)

    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    # Its mode would not stop root, who may run the tests.
    monkeypatch.setattr(Path, "iterdir", refuse)
    for _ in range(2):
        assert authorizer.check(BOB, "query_table", TABLE).allowed
        assert authorizer.problem == f"{tmp_path} cannot be read: Permission denied"
    with pytest.raises(InvalidInputError, match="cannot be read: Permission denied"):
        CedarAuthorizer(tmp_path)


def _replace(file: Path, text: str) -> None:
    new = file.with_suffix(".new")
    new.write_text(text)
    os.replace(new, file)


# -- evaluations -----------------------------------------------------------------------------------


POLICIES = "\n".join(
    f'permit(principal == User::"u{each}", action in Action::"see", '
    f'resource in Namespace::"n{each}");'
    for each in range(200)
)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of questions in each call of cedarpy."""
    sizes: list[int] = []
    evaluate = cedarpy.is_authorized_batch

    def counting(requests: list[dict[str, str]], policies: object, *rest: object) -> object:
        assert isinstance(policies, cedarpy.PolicySet)
        sizes.append(len(requests))
        return evaluate(requests, policies, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(cedarpy, "is_authorized_batch", counting)
    return sizes


def test_a_listing_is_one_evaluation(tmp_path: Path, calls: list[int]) -> None:
    authorizer = cedar(tmp_path, POLICIES)
    paths = [(f"n{each % 400}", f"t{each}") for each in range(1000)]
    assert len(authorizer.filter(Principal("u7"), "list_tables", paths)) == 3
    assert calls == [1000]


def test_an_allowed_operation_is_one_evaluation(tmp_path: Path, calls: list[int]) -> None:
    assert cedar(tmp_path, POLICIES).check(Principal("u7"), "describe_table", ("n7", "t")).allowed
    assert calls == [2]


def test_decisions_of_threads_stay_apart_while_policies_change(tmp_path: Path) -> None:
    authorizer = cedar(tmp_path, POLICIES, check_seconds=0)
    wrong: list[int] = []

    def check(user: int) -> None:
        for other in range(100):
            decision = authorizer.check(Principal(f"u{user}"), "describe_table", (f"n{other}", "t"))
            if decision.allowed != (user == other):
                wrong.append(other)

    threads = [threading.Thread(target=check, args=(user,)) for user in range(8)]
    for each in threads:
        each.start()
    for number in range(5):
        new = tmp_path / "policies.new"
        new.write_text(f"// {number}\n{POLICIES}")
        new.rename(tmp_path / "policies.cedar")
    for each in threads:
        each.join()
    assert wrong == []


# -- explanations, and authorizers by their names --------------------------------------------------


EXPLAINED = """@id("readers")
permit(principal in Group::"analysts", action in Action::"read", resource in Namespace::"sales");
@id("makers")
permit(principal in Group::"analysts", action in Action::"create", resource);
@id("no-pay")
forbid(principal, action, resource == Table::"sales.pay");
"""
ANN = Principal("ann", frozenset({"analysts"}))


@pytest.mark.parametrize(
    ("operation", "table", "answer", "policies"),
    [
        ("query_table", "orders", "done", [("readers", "permit", 1)]),
        ("drop_table", "orders", "permission denied", []),
        ("query_table", "pay", "not found", [("no-pay", "forbid", 5)]),
        ("create_table", "orders", "done", [("makers", "permit", 3)]),
    ],
)
def test_the_policy_that_decides_is_named(
    tmp_path: Path, operation: str, table: str, answer: str, policies: list[tuple[str, str, int]]
) -> None:
    authorizer, namespace = cedar(tmp_path, EXPLAINED), memory_namespace(tmp_path)
    found = explain(authorizer, namespace, ANN, operation, ["sales", table])
    decision = "allow" if answer == "done" else "deny"
    assert (found["decision"], found["answer"]) == (decision, answer)
    file = tmp_path / "policies.cedar"
    assert found["policies"] == [
        {"id": name, "effect": effect, "place": f"{file}, line {line}"}
        for name, effect, line in policies
    ]


def test_creating_what_one_cannot_see_is_denied(tmp_path: Path) -> None:
    authorizer, namespace = cedar(tmp_path, EXPLAINED), memory_namespace(tmp_path)
    found = explain(authorizer, namespace, ANN, "create_table", ["other", "t"])
    assert found["decision"] == "deny"
    assert "may not see the new object" in found["answer"]


def test_unknown_operations_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="Unknown operation 'read'"):
        explain(AllowAll(), memory_namespace(tmp_path), ANN, "read", ["a", "b"])


VERSIONS = """@id("writes")
permit(principal, action in [Action::"write", Action::"see"], resource in Namespace::"sales");
@id("drops")
permit(principal, action == Action::"deregister_table", resource == Table::"sales.old");
@id("no-pay")
forbid(principal, action, resource == Table::"sales.pay,2");
"""


@pytest.mark.parametrize(
    ("operation", "ids", "answer", "decisions"),
    [
        ("batch_create_table_versions", "sales.a", "done", ["allow"]),
        ("batch_create_table_versions", "sales.a,sales.b", "done", ["allow", "allow"]),
        ("batch_create_table_versions", "sales.a,sales.`pay,2`", "not found", ["allow", "deny"]),
        (
            "batch_commit_tables",
            "create_table_version=sales.a,deregister_table=sales.old",
            "done",
            ["allow", "allow"],
        ),
        (
            "batch_commit_tables",
            "create_table_version=sales.a,delete_table_versions=sales.a,deregister_table=sales.old",
            "permission denied",
            ["allow", "deny", "allow"],
        ),
    ],
)
def test_each_entry_of_a_batch_is_explained(
    tmp_path: Path, operation: str, ids: str, answer: str, decisions: list[str]
) -> None:
    namespace = memory_namespace(
        tmp_path, table_rule=NameRule("table", re.compile(".+"), "any", 40)
    )
    authorizer = cedar(tmp_path, VERSIONS)
    found = explain_request(authorizer, namespace, ANN, operation, ids)
    decision = "allow" if answer == "done" else "deny"
    assert (found["decision"], found["answer"]) == (decision, answer)
    assert [each["decision"] for each in found["entries"]] == decisions


@pytest.mark.parametrize("ids", ["sales.a", "drop_table=sales.a", "create_table_version=", ""])
def test_a_batch_that_cannot_be_is_refused(tmp_path: Path, ids: str) -> None:
    namespace = memory_namespace(tmp_path)
    with pytest.raises(InvalidInputError):
        explain_request(AllowAll(), namespace, ANN, "batch_commit_tables", ids)


@pytest.mark.spec("server.md#other-authorizers")
@pytest.mark.parametrize(
    ("method", "options"),
    [("opa", {}), ("none", {"policies": "x"}), ("cedar", {}), ("cedar", {"file": "x"})],
)
def test_unknown_names_and_options_are_refused(method: str, options: dict[str, str]) -> None:
    with pytest.raises(InvalidInputError):
        make_authorizer(method, options)


class Denying(AllowAll):
    def __init__(self, reason: str) -> None:
        if not reason:
            raise ValueError("reason is empty")
        self.reason = reason


@pytest.mark.spec("server.md#other-authorizers")
def test_packages_bring_authorizers(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EntryPoint("denying", f"{__name__}:Denying", GROUP)
    found = "lance_bridge_server.access.authorizer.entry_points"
    monkeypatch.setattr(found, lambda *, group: [entry] if group else [])
    made = make_authorizer("denying", {"reason": "closed"})
    assert getattr(made, "reason") == "closed"  # noqa: B009 - its class is imported twice
    with pytest.raises(InvalidInputError, match="'denying'"):
        make_authorizer("denying", {})
    with pytest.raises(InvalidInputError, match="'denying': reason is empty"):
        make_authorizer("denying", {"reason": ""})


def serve_with(policies: Path) -> list[str]:
    """Return the command for a server of a catalog with these policies."""
    config = write_config(
        policies if policies.is_dir() else policies.parent,
        catalogs={"prod": {"impl": "hive", "uri": "thrift://127.0.0.1:1"}},
        authorization={"method": "cedar", "policies": str(policies)},
    )
    return ["serve", "--config", str(config)]


def test_the_command_explains(tmp_path: Path) -> None:
    (tmp_path / "policies.cedar").write_text(EXPLAINED.replace('"sales', '"prod.sales'))
    asked = [*serve_with(tmp_path), "--explain", "ann", "query_table"]
    found = answer_of(*asked, "prod.Sales.PAY", "--group", "analysts")
    assert (found["decision"], found["id"]) == ("deny", ["prod", "sales", "pay"])
    assert found["policies"][0]["id"] == "no-pay"
    done = run(*asked, "prod.sales.orders", "--group", "analysts")
    assert "decision: allow\nanswer: done\npolicy: readers permit" in done.output
    batch = "create_table_version=prod.sales.orders,deregister_table=prod.sales.pay"
    done = run(*asked[:-1], "batch_commit_tables", batch, "--group", "analysts")
    assert "entry: deregister_table prod.sales.pay\n  decision: deny" in done.output
    done = run(*asked, "prod.sales.orders")
    assert "policy: none applies" in done.output


def test_a_wrong_policy_ends_the_command(tmp_path: Path) -> None:
    file = tmp_path / "policies.cedar"
    file.write_text("permit(principal, action, resourc);")
    for more in ([], ["--check"], ["--explain", "ann", "query_table", "prod.a.b"]):
        done = run(*serve_with(file), *more, code=2)
        assert f"{file}, line 1" in done.output.replace("\n", "")
