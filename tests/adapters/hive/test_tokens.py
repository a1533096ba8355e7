"""Delegation tokens in strings and in files that Hadoop's own classes have written."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from lance_bridge_hive.tokens import DelegationToken, parse_token, read_token

pytestmark = [pytest.mark.quick, pytest.mark.spec("hive.md#delegation-tokens")]

# Written by `org.apache.hadoop.security.Credentials` of Hadoop 3.5.0: the token of a metastore, one
# of HiveServer2, one of HDFS, and a secret key. The identifier of the first has 206 bytes, so that
# its size takes two.
WRITABLE = (
    "SERUUwADAm5uBGhkZnMDcHczFUhERlNfREVMRUdBVElPTl9UT0tFTg0xMC4wLjAuMTo4MDIwA2hzMgVvdGhlcgNwdzIV"
    "SElWRV9ERUxFR0FUSU9OX1RPS0VOFmhpdmVzZXJ2ZXIyQ2xpZW50VG9rZW4daGl2ZS5zZXJ2ZXIyLmRlbGVnYXRpb24u"
    "dG9rZW6PzmFsaWNlLWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlp"
    "aWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlp"
    "aWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlp"
    "aWlpaWlpB3Bhc3Mtw6kVSElWRV9ERUxFR0FUSU9OX1RPS0VOAAEDa2V5BXZhbHVl"
)
PROTOBUF = (
    "SERUUwGjAwo3CgJubhIxCgRoZGZzEgNwdzMaFUhERlNfREVMRUdBVElPTl9UT0tFTiINMTAuMC4wLjE6ODAyMApCCgNo"
    "czISOwoFb3RoZXISA3B3MhoVSElWRV9ERUxFR0FUSU9OX1RPS0VOIhZoaXZlc2VydmVyMkNsaWVudFRva2VuCpUCCh1o"
    "aXZlLnNlcnZlcjIuZGVsZWdhdGlvbi50b2tlbhLzAQrOAWFsaWNlLWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlp"
    "aWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlp"
    "aWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlp"
    "aWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpEgdwYXNzLcOpGhVISVZFX0RFTEVHQVRJT05fVE9LRU4iABIM"
    "CgNrZXkaBXZhbHVl"
)
URL_STRING = (
    "j85hbGljZS1paWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlp"
    "aWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlp"
    "aWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlp"
    "aQdwYXNzLcOpFUhJVkVfREVMRUdBVElPTl9UT0tFTgA"
)

FILES = {"writable": base64.b64decode(WRITABLE), "protobuf": base64.b64decode(PROTOBUF)}
IDENTIFIER = b"alice-" + b"i" * 200
PASSWORD = "pass-é".encode()
KIND = "HIVE_DELEGATION_TOKEN"


@pytest.fixture(params=FILES)
def file(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    path = tmp_path / "tokens"
    path.write_bytes(FILES[request.param])
    return path


def test_the_token_of_the_metastore_is_found_in_both_versions_of_the_file(file: Path) -> None:
    assert read_token(file, "") == DelegationToken(IDENTIFIER, PASSWORD, KIND, "")


def test_a_service_selects_among_several_tokens(file: Path) -> None:
    found = read_token(file, "hiveserver2ClientToken")
    assert (found.identifier, found.password) == (b"other", b"pw2")
    with pytest.raises(ValueError, match="for '', 'hiveserver2ClientToken': set"):
        read_token(file, "10.0.0.1:8020")


def test_a_string_is_the_same_token() -> None:
    found = parse_token(URL_STRING)
    assert found == DelegationToken(IDENTIFIER, PASSWORD, KIND, "")
    assert parse_token(f" {URL_STRING}==\n") == found
    assert base64.b64decode(found.sasl_username) == IDENTIFIER
    assert base64.b64decode(found.sasl_password) == PASSWORD


@pytest.mark.parametrize("content", FILES.values(), ids=FILES)
def test_a_file_that_ends_too_early_is_refused_and_nothing_of_it_shown(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "tokens"
    found: list[DelegationToken] = []
    refused: list[str] = []
    for size in range(len(content)):
        path.write_bytes(content[:size])
        try:
            found.append(read_token(path, ""))
        except ValueError as error:
            refused.append(str(error))
    # Only what comes after the tokens, in version 0, may be missing.
    assert {(each.identifier, each.password) for each in found} <= {(IDENTIFIER, PASSWORD)}
    assert len(found) < 20
    assert "alice" not in "".join(refused)
    assert "pass-" not in "".join(refused)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "No such file"),
        (b"", "ends too early"),
        (b"HDTX\0\0", "does not begin with HDTS"),
        (b"HDTS\x02", "version 2 is unknown"),
        (b"HDTS\0\0\0", "has no token of the kind HIVE_DELEGATION_TOKEN"),
        (b"HDTS\x01\0", "has no token of the kind HIVE_DELEGATION_TOKEN"),
        (b"HDTS\0\x87", "a count is negative"),
        (b"HDTS\0\x8c\x7f\xff\xff\xff", "ends too early"),
        (b"HDTS\x01" + b"\xff" * 12, "a number is too long"),
        (b"HDTS\x01\x02\x0b\0", "a field has an unknown type"),
    ],
)
def test_a_file_without_a_token_is_refused(
    tmp_path: Path, content: bytes | None, said: str
) -> None:
    path = tmp_path / "tokens"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ValueError, match=said):
        read_token(path, "")


@pytest.mark.parametrize("text", ["", "hush", "hush!", URL_STRING[:40], "é"])
def test_a_string_that_is_no_token_is_refused_and_not_shown(text: str) -> None:
    with pytest.raises(ValueError, match="not a delegation token") as caught:
        parse_token(text)
    assert "hush" not in str(caught.value)


def test_a_repr_shows_neither_user_nor_password(file: Path) -> None:
    shown = repr(read_token(file, ""))
    assert "alice" not in shown
    assert "pass-" not in shown
