"""Explanations of decisions, and authorizers by their names."""

from __future__ import annotations

import re
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from cli.running import answer_of, run
from lance_namespace.errors import InvalidInputError
from server.authenticated import write_config
from server.policies import cedar, memory_namespace

from lance_bridge.catalog import NameRule
from lance_bridge_server.authorization import AllowAll, authorizers
from lance_bridge_server.authorization.authorizers import make_authorizer
from lance_bridge_server.authorization.explain import explain, explain_request
from lance_bridge_server.principals import Principal

pytestmark = [pytest.mark.quick, pytest.mark.spec("server.md#policy-files")]

POLICIES = """@id("readers")
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
    authorizer, namespace = cedar(tmp_path, POLICIES), memory_namespace(tmp_path)
    found = explain(authorizer, namespace, ANN, operation, ["sales", table])
    decision = "allow" if answer == "done" else "deny"
    assert (found["decision"], found["answer"]) == (decision, answer)
    file = tmp_path / "policies.cedar"
    assert found["policies"] == [
        {"id": name, "effect": effect, "place": f"{file}, line {line}"}
        for name, effect, line in policies
    ]


def test_creating_what_one_cannot_see_is_denied(tmp_path: Path) -> None:
    authorizer, namespace = cedar(tmp_path, POLICIES), memory_namespace(tmp_path)
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
    entry = EntryPoint("denying", f"{__name__}:Denying", authorizers.GROUP)
    monkeypatch.setattr(authorizers, "entry_points", lambda *, group: [entry] if group else [])
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
    (tmp_path / "policies.cedar").write_text(POLICIES.replace('"sales', '"prod.sales'))
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
