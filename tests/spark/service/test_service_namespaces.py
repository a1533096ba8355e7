"""What the service answers about namespaces."""

from __future__ import annotations

from dataclasses import replace

import pytest
from core.memory_catalog import CAPABILITIES, MemoryServer, Moment

from lance_bridge.catalog import NamespaceWords
from lance_bridge.errors import OutcomeUnknownError
from lance_bridge_spark.addresses import CatalogAddress

from .service_requests import NAMESPACE, TABLE, ask, create, losing, refusal

pytestmark = pytest.mark.quick


def _properties(catalog: CatalogAddress, namespace: list[str]) -> dict[str, str]:
    return dict(ask(catalog, "load_namespace", namespace=namespace)["properties"])


def test_namespaces_are_made_listed_and_dropped(catalog: CatalogAddress) -> None:
    ask(catalog, "create_namespace", namespace=["a"], properties={"team": "x", "owner": "spark"})
    assert ask(catalog, "list_namespaces", namespace=[]) == {"namespaces": [["a"], ["db"]]}
    assert ask(catalog, "list_namespaces", namespace=["a"]) == {"namespaces": []}
    assert _properties(catalog, ["a"]) == {"team": "x"}
    assert refusal(catalog, "create_namespace", namespace=["a"], properties={})[0] == 2
    ask(catalog, "drop_namespace", namespace=["a"], cascade=False)
    for op in ("load_namespace", "list_namespaces", "drop_namespace"):
        assert refusal(catalog, op, namespace=["a"])[0] == 1


def test_nested_namespaces_are_listed_by_their_whole_paths(
    catalog: CatalogAddress, server: MemoryServer
) -> None:
    server.capabilities = replace(CAPABILITIES, no_alter="", no_rename="")
    for path in (["eu"], ["eu", "shop"], ["eu", "shop", "sales"]):
        ask(catalog, "create_namespace", namespace=path, properties={})
    assert ask(catalog, "list_namespaces", namespace=["eu"]) == {"namespaces": [["eu", "shop"]]}
    assert ask(catalog, "list_tables", namespace=["eu", "shop"]) == {"tables": []}
    create(catalog, ["eu", "shop", "sales", "t"])
    assert ask(catalog, "list_tables", namespace=["eu", "shop", "sales"]) == {"tables": ["t"]}


def test_only_a_cascade_drops_a_namespace_with_tables(catalog: CatalogAddress) -> None:
    create(catalog, TABLE)
    assert refusal(catalog, "drop_namespace", namespace=NAMESPACE, cascade=False)[0] == 3
    ask(catalog, "drop_namespace", namespace=NAMESPACE, cascade=True)
    assert ask(catalog, "list_namespaces", namespace=[]) == {"namespaces": []}


def test_properties_are_set_and_unset_and_the_rest_stays(
    catalog: CatalogAddress, server: MemoryServer
) -> None:
    ask(catalog, "create_namespace", namespace=["a"], properties={"k": "1", "l": "2"})
    reserved = {
        key: value
        for key, value in server.namespaces["a",].properties.items()
        if key.startswith("lance_bridge.")
    }
    assert reserved
    ask(catalog, "alter_namespace", namespace=["a"], set={"k": "3", "m": "4"}, unset=["l"])
    assert _properties(catalog, ["a"]) == {"k": "3", "m": "4"}
    assert server.namespaces["a",].properties.items() >= reserved.items()


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"set": {"lance_bridge.id": "x"}}, 13),
        ({"unset": ["lance_bridge.id"]}, 13),
        ({"set": {"LANCE_BRIDGE.id": "x"}}, 13),
        ({"unset": ["Lance_Bridge.id"]}, 13),
        ({"set": {"": "x"}}, 13),
        ({"namespace": ["none"], "set": {"k": "v"}}, 1),
        ({"namespace": [], "set": {"k": "v"}}, 13),
    ],
)
def test_what_cannot_change_of_a_namespace_is_refused(
    catalog: CatalogAddress, server: MemoryServer, changes: dict[str, object], code: int
) -> None:
    args = {"namespace": NAMESPACE, "set": {}, "unset": [], **changes}
    assert refusal(catalog, "alter_namespace", **args)[0] == code
    assert not server.effects


def test_a_catalog_without_changes_of_namespaces_gives_its_reason(
    catalog: CatalogAddress, server: MemoryServer
) -> None:
    server.capabilities = replace(server.capabilities, no_namespace_changes="it is frozen")
    code, message = refusal(
        catalog, "alter_namespace", namespace=NAMESPACE, set={"k": "v"}, unset=[]
    )
    assert code == 0
    assert "it is frozen" in message


def test_a_change_whose_reply_is_lost_is_found_to_have_happened(
    catalog: CatalogAddress, server: MemoryServer
) -> None:
    server.fault = losing("alter_namespace", OutcomeUnknownError("lost"), "after")
    ask(catalog, "alter_namespace", namespace=NAMESPACE, set={"k": "v"}, unset=[])
    assert server.effects == ["alter_namespace"]
    assert _properties(catalog, NAMESPACE) == {"k": "v"}


def test_a_catalog_that_keeps_its_comment_is_found_out(
    catalog: CatalogAddress, server: MemoryServer
) -> None:
    _call(server, NamespaceWords("description"))
    given = {"comment": "Orders"}
    ask(catalog, "create_namespace", namespace=["a"], properties=given)
    before = server.namespaces["a",]

    def keep(name: str, moment: Moment) -> None:
        if (name, moment) == ("alter_namespace", "after"):
            server.namespaces["a",] = before

    server.fault = keep
    changes = {"set": {"comment": "All"}, "unset": []}
    code, message = refusal(catalog, "alter_namespace", namespace=["a"], **changes)
    assert code == 0
    assert "comment" in message
    assert _properties(catalog, ["a"]) == given


WORDS = (
    NamespaceWords("database.description", "database.location-uri", "database.owner"),
    NamespaceWords("description"),
    NamespaceWords(),
)


@pytest.mark.parametrize("words", WORDS)
def test_comment_and_location_have_the_names_that_the_catalog_gives_them(
    catalog: CatalogAddress, server: MemoryServer, words: NamespaceWords
) -> None:
    _call(server, words)
    given = {"comment": "Orders", "location": "/lake/a"}
    owner = {"owner": "me"} if words.owner else {}
    ask(catalog, "create_namespace", namespace=["a"], properties={**given, "owner": "me"})
    stored = server.namespaces["a",].properties
    assert (stored[words.comment], stored[words.location]) == ("Orders", "/lake/a")
    assert _properties(catalog, ["a"]) == {**given, **owner}
    ask(catalog, "alter_namespace", namespace=["a"], set={"comment": "All"}, unset=[])
    assert server.namespaces["a",].properties[words.comment] == "All"


def _call(server: MemoryServer, words: NamespaceWords) -> None:
    server.capabilities = replace(server.capabilities, namespace_words=(words,))
