"""What Azure is asked, what its answers become, and what signatures allow, whatever the names.

The double answers as the documentation of Entra ID's token endpoint and of "Get User Delegation
Key" has it. It takes any token and limits nothing. Signatures are checked as "Create a user
delegation SAS" says: the service takes as many segments of the request's path as the signature's
depth says, and signs what it was given with them. What it cannot show: that Azure does so.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import ipaddress
import json
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pytest
from adapters.vendors.grants import COUNTS, is_own, locations, other_keys, own_keys
from azure.storage.blob import UserDelegationKey
from cryptography import x509
from lance_namespace import errors
from server.certificates import Authority
from servers.processes import returns_in_child
from servers.replies import Replies, reply_server, unanswered

from lance_bridge.credentials import EXPIRES_AT
from lance_bridge_vendors.azure import AzureOptions, AzureVendor, directory_signature

from .grants import BUCKET, grant

pytestmark = pytest.mark.quick

ACCOUNT = "lake"
SECRET = "own-secret"
GRANT = grant(store="az")
KEY = base64.b64encode(b"a user delegation key").decode()
TIMES = ("2026-11-24T00:00:00Z", "2026-12-01T00:00:00Z")
KEY_PATH = "/"
ANSWER = (
    '<?xml version="1.0" encoding="utf-8"?><UserDelegationKey><SignedOid>oid</SignedOid>'
    f"<SignedTid>tid</SignedTid><SignedStart>{TIMES[0]}</SignedStart>"
    f"<SignedExpiry>{TIMES[1]}</SignedExpiry><SignedService>b</SignedService>"
    f"<SignedVersion>2020-02-10</SignedVersion><Value>{KEY}</Value></UserDelegationKey>"
)
PRINCIPAL = {
    "azure_storage_account_name": ACCOUNT,
    "azure_storage_tenant_id": "adfs",  # another tenant's address is asked of Microsoft's own first
    "azure_storage_client_id": "vendor",
    "azure_storage_client_secret": SECRET,
}
_KEY_FIELDS = ("skoid", "sktid", "skt", "ske", "sks", "skv", "saoid", "suoid", "scid", "skdutid",
               "sduoid")  # fmt: skip
_OTHER_FIELDS = ("sip", "spr", "sv", "sr", "snapshot", "ses", "srh", "srq", "rscc", "rscd", "rsce",
                 "rscl", "rsct")  # fmt: skip


def refusal(code: str, message: str = "said so") -> str:
    return f'<?xml version="1.0"?><Error><Code>{code}</Code><Message>{message}</Message></Error>'


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, tuple[Path, Path]]:
    """An authority, and the certificate of this machine."""
    authority = Authority(tmp_path_factory.mktemp("azure"))
    here = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    return authority.path, authority.issue("azure", names=[here])


@pytest.fixture
def azure(certificate: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Replies]:
    """The token endpoint and the account: the SDK sends tokens by HTTPS alone."""
    authority, own = certificate
    with reply_server(own) as replies:
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(authority))
        monkeypatch.setenv("AZURE_AUTHORITY_HOST", replies.address)
        tenant = f"{replies.address}/adfs"
        found = {
            "issuer": tenant,
            "authorization_endpoint": f"{tenant}/oauth2/authorize",
            "token_endpoint": f"{tenant}/oauth2/token",
        }
        token = {"access_token": "own-token", "token_type": "Bearer", "expires_in": 3600}
        replies.by_path = {
            "openid-configuration": (200, json.dumps(found)),
            "oauth2/token": (200, json.dumps(token)),
            KEY_PATH: (200, ANSWER),
        }
        replies.content_type = "application/xml"
        yield replies


def vendor(address: str | None, storage: Any = PRINCIPAL, **options: Any) -> AzureVendor:
    return AzureVendor(AzureOptions(endpoint=address, **options), storage)


def delegation_key() -> UserDelegationKey:
    key = UserDelegationKey()
    key.signed_oid, key.signed_tid, key.signed_service, key.signed_version = "o", "t", "b", "2020"
    key.signed_start, key.signed_expiry = TIMES
    key.value = KEY
    return key


@pytest.mark.spec("common.md#options-of-azure")
def test_the_account_is_asked_for_a_key_that_signs_for_the_directory(azure: Replies) -> None:
    options = vendor(azure.address, duration_seconds=900).vend(GRANT)
    assert azure.paths[-1] == "/?restype=service&comp=userdelegationkey"
    assert azure.headers[-1]["authorization"] == "Bearer own-token"
    signature = options["azure_storage_sas_token"]
    assert fields(signature)["sr"] == "d"
    assert fields(signature)["sdd"] == "3"
    assert allows(signature, KEY, f"{ACCOUNT}/{BUCKET}", "r", f"{GRANT.prefix}/data/1.lance")
    assert options["azure_storage_account_name"] == ACCOUNT
    assert options["azure_storage_endpoint"] == azure.address
    assert not {SECRET, "own-token"} & set(options.values())


@pytest.mark.spec("common.md#concurrency-and-crash-safety")
def test_a_child_process_uses_no_connection_of_its_parent(azure: Replies) -> None:
    made = vendor(azure.address)
    made.vend(GRANT)
    before, asked = azure.connections, len(azure.paths)
    made.vend(GRANT)
    assert (azure.connections, len(azure.paths)) == (before, asked + 1)
    assert returns_in_child(lambda: made.vend(GRANT))
    assert azure.connections > before
    before = azure.connections
    made.vend(GRANT)
    assert azure.connections == before


@pytest.mark.spec("common.md#vending-rules")
def test_the_end_is_the_signatures(azure: Replies) -> None:
    options = vendor(azure.address, duration_seconds=900).vend(GRANT)
    end = fields(options["azure_storage_sas_token"])["se"]
    expires = datetime.strptime(end, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc)
    assert int(options[EXPIRES_AT]) == expires.timestamp() * 1000
    assert 890 < expires.timestamp() - time.time() <= 900
    assert f"<Expiry>{end}</Expiry>" in azure.bodies[-1]


@pytest.mark.spec("common.md#vending-rules")
def test_readers_read_and_list_and_writers_also_create_and_delete() -> None:
    expires = datetime.now(timezone.utc)
    path, own = f"{GRANT.prefix}/data/1.lance", f"{ACCOUNT}/{BUCKET}"
    reader, writer = (
        directory_signature(delegation_key(), ACCOUNT, grant(write=write), expires)
        for write in (False, True)
    )
    assert [each for each in "racwdxyltmeopi" if allows(reader, KEY, own, each, path)] == ["r", "l"]
    assert [each for each in "racwdxyltmeopi" if allows(writer, KEY, own, each, path)] == [
        "r", "c", "w", "d", "l",
    ]  # fmt: skip
    assert fields(writer)["spr"] == "https"


@pytest.mark.spec("common.md#vending-rules")
@pytest.mark.parametrize("count", COUNTS)
def test_no_name_reaches_a_file_outside_its_table_or_fails_to_reach_its_own(count: int) -> None:
    expires, key, outside = datetime.now(timezone.utc), delegation_key(), 0
    for number, (location, place) in enumerate(locations(count, "az")):
        made = grant(bucket=place.bucket, prefix=place.prefix)
        signature = directory_signature(key, ACCOUNT, made, expires)
        own = f"{ACCOUNT}/{place.bucket}"
        for path in own_keys(place.prefix):
            assert allows(signature, KEY, own, "w", path), location
        for path in other_keys(place.prefix, number):
            if not is_own(place.prefix, path) and path != place.prefix:
                outside += 1
                assert not allows(signature, KEY, own, "r", path), (location, path)
    assert outside > 5 * count


@pytest.mark.spec("common.md#rights-and-lifetime")
@pytest.mark.parametrize("account", ["other", "lake2"])
def test_another_account_gets_none(azure: Replies, account: str) -> None:
    with pytest.raises(errors.PermissionDeniedError, match=f"account '{account}'"):
        vendor(azure.address).vend(grant(store="az", account=account))
    assert azure.paths == []
    vendor(azure.address).vend(grant(store="az", account=ACCOUNT))


@pytest.mark.spec("common.md#rights-and-lifetime")
@pytest.mark.parametrize(
    ("path", "status", "body", "expected", "advice"),
    [
        ("oauth2/token", 401, json.dumps({"error": "invalid_client", "error_description":
         "AADSTS7000215: Invalid client secret provided"}), errors.PermissionDeniedError, "role"),
        ("oauth2/token", 401, json.dumps({"error": "invalid_client", "error_description":
         "AADSTS700024: Client assertion is not within its valid time range"}),
         errors.ServiceUnavailableError, "clock"),
        (KEY_PATH, 403, refusal("AuthorizationPermissionMismatch"), errors.PermissionDeniedError,
         "Storage Blob Delegator"),
        (KEY_PATH, 503, refusal("ServerBusy"), errors.ThrottlingError, "later"),
        (KEY_PATH, 429, "", errors.ThrottlingError, "later"),
        (KEY_PATH, 500, refusal("InternalError"), errors.ServiceUnavailableError, ""),
        (KEY_PATH, 404, refusal("ResourceNotFound"), errors.UnsupportedOperationError, "endpoint"),
        (KEY_PATH, 501, "", errors.UnsupportedOperationError, "endpoint"),
        (KEY_PATH, 400, refusal("InvalidXmlNodeValue"), errors.InternalError, ""),
        (KEY_PATH, 200, "<html>no</html", errors.ServiceUnavailableError, ""),
    ],
)  # fmt: skip
def test_what_azure_refuses_is_an_error_of_its_own(
    azure: Replies, *, path: str, status: int, body: str, expected: type[Exception], advice: str
) -> None:
    azure.by_path[path] = (status, body)
    with pytest.raises(expected, match=r"No credentials for table 'films\.reels'") as caught:
        vendor(azure.address).vend(GRANT)
    assert type(caught.value) is expected
    assert advice in str(caught.value)
    assert SECRET not in str(caught.value)


@pytest.mark.spec("common.md#rights-and-lifetime")
@pytest.mark.parametrize("status", [200, 403])
@pytest.mark.parametrize("ahead", [-3600, 3600])
def test_a_clock_that_is_off_is_an_error_and_no_signature(
    azure: Replies, status: int, ahead: int
) -> None:
    azure.date = format_datetime(datetime.now(timezone.utc) + timedelta(seconds=ahead), usegmt=True)
    azure.by_path[KEY_PATH] = (status, ANSWER if status == 200 else refusal("Authentication"))
    with pytest.raises(errors.ServiceUnavailableError, match="clock of this machine is wrong"):
        vendor(azure.address).vend(GRANT)


@pytest.mark.spec("common.md#rights-and-lifetime")
@pytest.mark.parametrize("what", ["account", "identity"])
def test_what_is_unreachable_is_given_up_in_time(
    azure: Replies, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    with unanswered() as address:
        account = azure.address
        if what == "account":
            account = f"https://{address}"
        else:
            monkeypatch.setenv("AZURE_AUTHORITY_HOST", f"https://{address}")
        start = time.monotonic()
        with pytest.raises(errors.ServiceUnavailableError, match="does not respond"):
            vendor(account).vend(GRANT)
    assert time.monotonic() - start < 30
    assert "own-token" not in str(azure.paths)


def test_without_credentials_to_ask_with_it_says_so(
    azure: Replies, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_TOKEN_CREDENTIALS", "EnvironmentCredential")  # not the machine's
    for each in ("CLIENT_ID", "CLIENT_SECRET", "TENANT_ID"):
        monkeypatch.delenv(f"AZURE_{each}", raising=False)
    start = time.monotonic()
    with pytest.raises(errors.PermissionDeniedError, match="No credentials"):
        vendor(azure.address, {"account_name": ACCOUNT}).vend(GRANT)
    assert time.monotonic() - start < 30


@pytest.mark.spec("common.md#options-of-azure")
def test_what_azures_tools_find_is_used(azure: Replies, monkeypatch: pytest.MonkeyPatch) -> None:
    for key, value in (("TENANT_ID", "adfs"), ("CLIENT_ID", "env"), ("CLIENT_SECRET", SECRET)):
        monkeypatch.setenv(f"AZURE_{key}", value)
    vendor(azure.address, {"account_name": ACCOUNT}).vend(GRANT)
    assert "client_id=env" in azure.bodies[-2]


@pytest.mark.spec("common.md#options-of-azure")
def test_the_account_must_be_known() -> None:
    with pytest.raises(ValueError, match="set account_name"):
        vendor(None, {})


# -- signatures, checked as Azure's storage does ---------------------------------------------------


def fields(token: str) -> dict[str, str]:
    """Return the fields of a signature, decoded."""
    return dict(parse_qsl(token, strict_parsing=True))


def allows(token: str, key: str, container: str, permission: str, path: str) -> bool:
    """Return whether a signature allows a permission on a path, whatever the time.

    Args:
        key: The user delegation key, in base64.
        container: The account and the container: ``account/container``.
        permission: A letter: ``r``, ``w``, ``c``, ``d``, ``l``.
    """
    given = fields(token)
    depth = int(given["sdd"])
    segments = path.split("/")
    if given["sr"] != "d" or permission not in given["sp"] or len(segments) < depth:
        return False
    directory = "/".join(segments[:depth])
    text = "\n".join(
        [given["sp"], given.get("st", ""), given["se"], f"/blob/{container}/{directory}"]
        + [given.get(each, "") for each in (*_KEY_FIELDS, *_OTHER_FIELDS)]
    )
    digest = hmac.new(base64.b64decode(key), text.encode(), hashlib.sha256).digest()
    return base64.b64encode(digest).decode() == given["sig"]
