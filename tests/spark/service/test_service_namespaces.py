"""What the service answers about namespaces."""

from __future__ import annotations

from dataclasses import replace

import pytest
from core.memory_catalog import CAPABILITIES, Moment

from lance_bridge.catalog import NamespaceWords
from lance_bridge.errors import OutcomeUnknownError

from .service_requests import NAMESPACE, TABLE, Service, losing

pytestmark = pytest.mark.quick


def _properties(service: Service, namespace: list[str]) -> dict[str, str]:
    return dict(service.ask("load_namespace", namespace=namespace)["properties"])


def test_namespaces_are_made_listed_and_dropped(service: Service) -> None:
    service.ask("create_namespace", namespace=["a"], properties={"team": "x", "owner": "spark"})
    assert service.ask("list_namespaces", namespace=[]) == {"namespaces": [["a"], ["db"]]}
    assert service.ask("list_namespaces", namespace=["a"]) == {"namespaces": []}
    assert _properties(service, ["a"]) == {"team": "x"}
    assert service.refusal("create_namespace", namespace=["a"], properties={})[0] == 2
    service.ask("drop_namespace", namespace=["a"], cascade=False)
    for op in ("load_namespace", "list_namespaces", "drop_namespace"):
        assert service.refusal(op, namespace=["a"])[0] == 1


def test_nested_namespaces_are_listed_by_their_whole_paths(service: Service) -> None:
    service.server.capabilities = replace(CAPABILITIES, no_alter="", no_rename="")
    for path in (["eu"], ["eu", "shop"], ["eu", "shop", "sales"]):
        service.ask("create_namespace", namespace=path, properties={})
    assert service.ask("list_namespaces", namespace=["eu"]) == {"namespaces": [["eu", "shop"]]}
    assert service.ask("list_tables", namespace=["eu", "shop"]) == {"tables": []}
    service.create(["eu", "shop", "sales", "t"])
    assert service.ask("list_tables", namespace=["eu", "shop", "sales"]) == {"tables": ["t"]}


def test_only_a_cascade_drops_a_namespace_with_tables(service: Service) -> None:
    service.create(TABLE)
    assert service.refusal("drop_namespace", namespace=NAMESPACE, cascade=False)[0] == 3
    service.ask("drop_namespace", namespace=NAMESPACE, cascade=True)
    assert service.ask("list_namespaces", namespace=[]) == {"namespaces": []}


def test_properties_are_set_and_unset_and_the_rest_stays(service: Service) -> None:
    service.ask("create_namespace", namespace=["a"], properties={"k": "1", "l": "2"})
    reserved = {
        key: value
        for key, value in service.server.namespaces["a",].properties.items()
        if key.startswith("lance_bridge.")
    }
    assert reserved
    service.ask("alter_namespace", namespace=["a"], set={"k": "3", "m": "4"}, unset=["l"])
    assert _properties(service, ["a"]) == {"k": "3", "m": "4"}
    assert service.server.namespaces["a",].properties.items() >= reserved.items()


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
    service: Service, changes: dict[str, object], code: int
) -> None:
    args = {"namespace": NAMESPACE, "set": {}, "unset": [], **changes}
    assert service.refusal("alter_namespace", **args)[0] == code
    assert not service.server.effects


def test_a_catalog_without_changes_of_namespaces_gives_its_reason(service: Service) -> None:
    service.server.capabilities = replace(
        service.server.capabilities, no_namespace_changes="it is frozen"
    )
    code, message = service.refusal(
        "alter_namespace", namespace=NAMESPACE, set={"k": "v"}, unset=[]
    )
    assert code == 0
    assert "it is frozen" in message


def test_a_change_whose_reply_is_lost_is_found_to_have_happened(service: Service) -> None:
    service.server.fault = losing("alter_namespace", OutcomeUnknownError("lost"), "after")
    service.ask("alter_namespace", namespace=NAMESPACE, set={"k": "v"}, unset=[])
    assert service.server.effects == ["alter_namespace"]
    assert _properties(service, NAMESPACE) == {"k": "v"}


def test_a_catalog_that_keeps_its_comment_is_found_out(service: Service) -> None:
    _call(service, NamespaceWords("description"))
    given = {"comment": "Orders"}
    service.ask("create_namespace", namespace=["a"], properties=given)
    before = service.server.namespaces["a",]

    def keep(name: str, moment: Moment) -> None:
        if (name, moment) == ("alter_namespace", "after"):
            service.server.namespaces["a",] = before

    service.server.fault = keep
    changes = {"set": {"comment": "All"}, "unset": []}
    code, message = service.refusal("alter_namespace", namespace=["a"], **changes)
    assert code == 0
    assert "comment" in message
    assert _properties(service, ["a"]) == given


WORDS = (
    NamespaceWords("database.description", "database.location-uri", "database.owner"),
    NamespaceWords("description"),
    NamespaceWords(),
)


@pytest.mark.parametrize("words", WORDS)
def test_comment_and_location_have_the_names_that_the_catalog_gives_them(
    service: Service, words: NamespaceWords
) -> None:
    _call(service, words)
    given = {"comment": "Orders", "location": "/lake/a"}
    owner = {"owner": "me"} if words.owner else {}
    service.ask("create_namespace", namespace=["a"], properties={**given, "owner": "me"})
    stored = service.server.namespaces["a",].properties
    assert (stored[words.comment], stored[words.location]) == ("Orders", "/lake/a")
    assert _properties(service, ["a"]) == {**given, **owner}
    service.ask("alter_namespace", namespace=["a"], set={"comment": "All"}, unset=[])
    assert service.server.namespaces["a",].properties[words.comment] == "All"


def _call(service: Service, words: NamespaceWords) -> None:
    service.server.capabilities = replace(service.server.capabilities, namespace_words=(words,))
