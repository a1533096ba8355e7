"""What a plan must not keep is known by its name, or by what it says."""

from __future__ import annotations

from pathlib import Path

import pytest
from lance_namespace.errors import InvalidInputError, ServiceUnavailableError

from lance_bridge.migrate import kind_named
from lance_bridge.migrate.journal import Event, Journal
from lance_bridge.migrate.secrecy import is_secret, tells_secret


@pytest.mark.parametrize(
    "key",
    [
        "spark.hadoop.fs.s3a.secret.key",
        "spark.hadoop.fs.s3a.access.key",
        "spark.hadoop.fs.s3a.encryption.key",
        "spark.hadoop.fs.gs.auth.service.account.private.key",
        "spark.hadoop.fs.azure.sas.box.account.blob.core.windows.net",
        "spark.hadoop.fs.azure.account.key.box",
        "spark.sql.catalog.x.header.Authorization",
        "spark.sql.catalog.x.header.X-Api-Key",
        "spark.sql.catalog.x.token",
        "spark.hadoop.javax.jdo.option.ConnectionPassword",
    ],
)
def test_settings_whose_names_say_so_are_secret(key: str) -> None:
    assert is_secret(key)


@pytest.mark.parametrize(
    "text",
    [
        "jdbc:postgresql://h/db?user=u&password=hunter2",
        "https://user:hunter2@host/x",
        "-Djavax.net.ssl.keyStorePassword=hunter2",
        "Bearer hunter2",
        "https://host/x?sig=hunter2",
    ],
)
def test_texts_with_a_secret_in_them_are_found(text: str) -> None:
    assert tells_secret(text)


@pytest.mark.parametrize(
    "text", ["thrift://host:9083", "s3://bucket/key=1/x", "/data/a", "hive", "org.apache.X"]
)
def test_other_texts_are_kept(text: str) -> None:
    assert not tells_secret(text)
    assert not is_secret(text)


def test_a_location_with_a_password_is_refused_without_repeating_it() -> None:
    path = "https://user:hunter2@host/files"
    given = {"path": path, "format": "csv", "table": "t"}
    with pytest.raises(InvalidInputError, match="no plan keeps a password") as refused:
        kind_named("convert").checked_options({"paths": [given], "namespace": ["db"]})
    assert "hunter2" not in str(refused.value)
    with pytest.raises(InvalidInputError, match="no plan keeps a password"):
        kind_named("export").checked_options({"directory": path})


def test_a_journal_that_cannot_be_written_says_so_when_it_is_closed(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.jsonl")
    journal.append(Event(event="run"))
    journal._file.close()
    journal._file = Path("/dev/full").open("ab")  # noqa: SIM115 - closed by what is tested
    with pytest.raises(ServiceUnavailableError, match="cannot be used"):
        journal.append(Event(event="ended"))
    with pytest.raises(ServiceUnavailableError, match="cannot be used"):
        journal.close()
