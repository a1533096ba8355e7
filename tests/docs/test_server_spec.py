"""``specs/server.md`` has every key of the configuration, and its example is read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from lance_bridge_server.configuration.authentication import (
    CertificateSettings,
    OidcSettings,
    ProxySettings,
)
from lance_bridge_server.configuration.login import ProviderLoginSettings
from lance_bridge_server.configuration.settings import ServerSettings
from lance_bridge_server.configuration.source import SettingsSource
from lance_bridge_server.policies import CedarAuthorizer
from lance_bridge_server.policies.schema import GROUPS
from lance_bridge_server.principals import Principal

from .spec_facts import DOCUMENTS

pytestmark = [pytest.mark.checks, pytest.mark.spec("server.md#authorization")]

SERVER_SPEC = DOCUMENTS["server"]


def keys(model: Any, prefix: str = "") -> Iterator[str]:
    """Yield the keys of settings; those of a method of authentication are listed by themselves."""
    if not hasattr(model, "model_fields"):
        yield from (f"{prefix}{name}" for name in model.__dataclass_fields__)
        return
    for name, field in model.model_fields.items():
        if name == "authentication":
            yield f"{name}[]"
            continue
        types = [field.annotation, *get_args(field.annotation)]
        inner = [each for each in types if isinstance(each, type) and _has_fields(each)]
        part = f"{name}[]" if inner and get_args(field.annotation)[:1] == (inner[0],) else name
        part = name if type(None) in get_args(field.annotation) else part
        yield from keys(inner[0], f"{prefix}{part}.") if inner else [f"{prefix}{name}"]


def _has_fields(type_: type) -> bool:
    return issubclass(type_, BaseModel) or hasattr(type_, "__dataclass_fields__")


@pytest.mark.spec("server.md#keys-of-the-configuration")
def test_every_key_of_the_configuration_is_documented() -> None:
    rows = SERVER_SPEC.rows("Keys of the Configuration", "key")
    assert [row[0].strip("`") for row in rows] == list(keys(ServerSettings))
    assert len(rows) > 20


@pytest.mark.spec(
    "server.md#a-trusted-proxy", "server.md#client-certificates", "server.md#openid-connect"
)
@pytest.mark.parametrize(
    ("title", "settings"),
    [
        ("OpenID Connect", OidcSettings),
        ("Client Certificates", CertificateSettings),
        ("A Trusted Proxy", ProxySettings),
    ],
)
def test_every_key_of_a_method_is_documented(title: str, settings: type[BaseModel]) -> None:
    rows = SERVER_SPEC.rows(title, "key")
    documented = [row[0].strip("`") for row in rows]
    assert documented == [name for name in settings.model_fields if name != "method"]


@pytest.mark.spec("server.md#signing-in")
def test_every_key_of_a_providers_login_is_documented() -> None:
    rows = SERVER_SPEC.rows("Signing In", "key of `login`")
    assert [row[0].strip("`") for row in rows] == list(ProviderLoginSettings.model_fields)


@pytest.mark.spec("server.md#databases", "server.md#the-configuration-file")
def test_the_configuration_of_the_spec_is_read(tmp_path: Path) -> None:
    [text] = SERVER_SPEC.snippets("yaml")
    path = tmp_path / "server.yaml"
    path.write_text(text)
    settings = SettingsSource(path).read()
    assert sorted(settings.catalogs) == ["aws", "prod"]
    assert settings.databases("sales") == ["prod", "sales"]
    assert settings.databases("archive") == ["aws", "sales_2020"]


def test_the_policies_of_the_spec_decide(tmp_path: Path) -> None:
    [text] = SERVER_SPEC.snippets("cedar")
    path = tmp_path / "policies.cedar"
    path.write_text(text)
    authorizer = CedarAuthorizer(path)
    analyst = Principal("ann", frozenset({"analysts"}))
    assert authorizer.check(analyst, "query_table", ("prod", "sales", "orders")).allowed
    pay = authorizer.check(analyst, "query_table", ("prod", "pay", "t"))
    assert (pay.allowed, pay.reasons) == (False, ("nobody-reads-pay",))
    loader = Principal("loader")
    assert authorizer.check(loader, "insert_into_table", ("prod", "sales", "orders")).allowed


def test_the_groups_of_actions_are_documented() -> None:
    rows = SERVER_SPEC.rows("Authorization", "group")
    assert tuple(row[0].strip("`") for row in rows) == GROUPS
