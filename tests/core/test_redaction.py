"""Secrets are recognised by the name of a setting, or by its text."""

from __future__ import annotations

import pytest

from lance_bridge.redaction import contains_secret, is_secret, redact

pytestmark = [pytest.mark.quick, pytest.mark.spec("migration.md#plan")]

KEYS = [
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
    "storage.sas",
    "storage.azure_sas_key",
    "account_key",
    "db.pwd",
    "dbPwd",
    "jdbc_pass",
    "spark.cookie",
    "session_cookie",
    "spark.kerberos.keytab",
    "tls.pem",
    "server.pem.key",
    "sasl.jaas.config",
    "kafka.sasl.jaas.config",
    "http.auth",
    "azure_storage_connection_string",
    "bearer",
]


def test_settings_whose_names_say_so_are_secret() -> None:
    assert [key for key in KEYS if not is_secret(key)] == []


SECRETS = [
    "jdbc:postgresql://h/db?user=u&password=hunter2",
    "https://user:hunter2@host/x",
    "-Djavax.net.ssl.keyStorePassword=hunter2",
    "Bearer hunter2",
    "https://host/x?sig=hunter2",
    "Basic dXNlcjpodW50ZXIy",
    "Authorization: Negotiate hunter2hunter2",
    "dapi0123456789abcdef0123456789abcdef",
    "dapi0123456789abcdef0123456789abcdef-2",
    "x eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJodW50ZXIyIn0.c2lnbmF0dXJl",
    "jdbc:oracle:thin:scott/hunter2@//db:1521/x",
    "jdbc:mysql://ann:hunter2@db/x",
    "jdbc:sqlserver://db;user=ann;password=hunter2;encrypt=true",
    "jdbc:db2://db/x:user=ann;pwd=hunter2;",
    "ann:hunter2@db.example.com",
    "cannot reach ann:hunter2@db.example.com",
    'org.x.PlainLoginModule required username="ann" password="hunter2 with a space";',
    '{"password": "hunter2"}',
    "{'sasl.jaas.config': 'hunter2'}",
    "AccountName=a;AccountKey=aHVudGVyMg==;EndpointSuffix=x",
    "SharedAccessSignature=sv=2024&sig=hunter2",
    "-----BEGIN RSA PRIVATE KEY-----\nhunter2\n-----END RSA PRIVATE KEY-----",
    "ya29.a0hunter2hunter2",
]


def test_texts_with_a_secret_in_them_are_found() -> None:
    assert [text for text in SECRETS if not contains_secret(text)] == []
    assert [text for text in SECRETS if "hunter2" in redact(text)] == []


OTHERS = [
    "thrift://host:9083",
    "s3://bucket/key=1/x",
    "/data/a",
    "hive",
    "org.apache.X",
    "abfss://container@account.dfs.core.windows.net/x",
    "jdbc:postgresql://db:5432/x?user=ann",
    "12:30:01 read 5 rows",
    "spark.sql.compass.direction",
    "bypass",
    "passthrough",
    "basic statistics",
    "compressionCodec",
    "secrets.file",
    "spark.sql.catalog.prod.secrets.provider",
    "spark.sql.catalog.prod.pickle.secrets",
    "credentials.vend",
    "author",
]


def test_other_texts_are_kept() -> None:
    assert [text for text in OTHERS if contains_secret(text) or is_secret(text)] == []
    assert [redact(text) for text in OTHERS] == OTHERS
