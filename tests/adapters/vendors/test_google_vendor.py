"""What Google's token services are asked, and what their answers become.

The double answers as the documentation of the services has it. It takes any signature and any
boundary: whether Google would take them it cannot show.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from lance_namespace import errors
from pydantic import ValidationError
from servers.processes import returns_in_child
from servers.replies import Replies, reply_server, unanswered

from lance_bridge.credentials import EXPIRES_AT
from lance_bridge_vendors.google import GoogleOptions, GoogleVendor, access_boundary

from .grants import grant

pytestmark = pytest.mark.quick

OWN_TOKEN, VENDED_TOKEN = "own-token", "vended-token"
TARGET = "tables@lake.iam.gserviceaccount.com"
EXCHANGE = "/v1/token"
GRANT = grant(store="gs")


def token(name: str, seconds: int | None = 3599) -> str:
    answer = {"access_token": name, "token_type": "Bearer", "expires_in": seconds}
    return json.dumps({key: value for key, value in answer.items() if value is not None})


def refusal(error: str, description: str = "said so") -> str:
    return json.dumps({"error": error, "error_description": description})


@pytest.fixture(scope="module")
def private_key() -> str:
    made = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    encoded = made.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return encoded.decode()


@pytest.fixture
def google() -> Iterator[Replies]:
    with reply_server() as replies:
        replies.content_type = "application/json"
        replies.by_path = {
            EXCHANGE: (200, token(VENDED_TOKEN)),
            "/token": (200, token(OWN_TOKEN, 1800)),
        }
        yield replies


@pytest.fixture
def key(google: Replies, private_key: str) -> str:
    """The key of the vendor's own account, which asks the double for its token."""
    account = {
        "type": "service_account",
        "client_email": "vendor@lake.iam.gserviceaccount.com",
        "private_key": private_key,
        "private_key_id": "1",
        "token_uri": f"{google.address}/token",
    }
    return json.dumps(account)


def vendor(google: Replies, key: str, **options: Any) -> GoogleVendor:
    given = {"sts_endpoint": google.address, "iam_endpoint": f"{google.address}/", **options}
    return GoogleVendor(GoogleOptions(**given), {"google_service_account_key": key})


@pytest.mark.spec("common.md#options-of-google")
def test_the_vendors_own_token_is_exchanged_for_one_with_the_boundary(
    google: Replies, key: str
) -> None:
    options = vendor(google, key).vend(GRANT)
    own, exchange = google.forms
    assert own["grant_type"] == "urn:ietf:params:oauth:grant-type:jwt-bearer"
    assert google.paths == ["/token", EXCHANGE]
    assert exchange["grant_type"] == "urn:ietf:params:oauth:grant-type:token-exchange"
    assert exchange["subject_token"] == OWN_TOKEN
    assert json.loads(unquote(exchange["options"])) == access_boundary(GRANT)
    assert options["google_storage_token"] == VENDED_TOKEN
    assert OWN_TOKEN not in options.values()


@pytest.mark.spec("common.md#vending-rules")
@pytest.mark.parametrize(("said", "seconds"), [(None, 1800), (600, 600), (3599, 1800)])
def test_a_token_ends_no_later_than_the_one_it_was_made_of(
    google: Replies, key: str, said: int | None, seconds: int
) -> None:
    google.by_path[EXCHANGE] = (200, token(VENDED_TOKEN, said))
    expires = int(vendor(google, key).vend(GRANT)[EXPIRES_AT]) / 1000
    assert seconds - 10 < expires - time.time() <= seconds


@pytest.mark.spec("common.md#options-of-google")
def test_another_account_is_impersonated_and_its_token_says_when_it_ends(
    google: Replies, key: str
) -> None:
    ends = datetime.now(timezone.utc).replace(microsecond=0) + timedelta(seconds=900)
    answer = {"accessToken": "target-token", "expireTime": f"{ends:%Y-%m-%dT%H:%M:%SZ}"}
    google.by_path[":generateAccessToken"] = (200, json.dumps(answer))
    made = vendor(google, key, service_account=TARGET, duration_seconds=900)
    options = made.vend(GRANT)
    assert google.paths[1] == f"/v1/projects/-/serviceAccounts/{TARGET}:generateAccessToken"
    assert json.loads(google.bodies[1])["lifetime"] == "900s"
    assert google.headers[1]["authorization"] == f"Bearer {OWN_TOKEN}"
    assert google.forms[2]["subject_token"] == "target-token"
    assert int(options[EXPIRES_AT]) == ends.timestamp() * 1000


@pytest.mark.spec("common.md#rights-and-lifetime")
@pytest.mark.parametrize(
    ("path", "status", "body", "expected", "advice"),
    [
        ("/token", 400, refusal("invalid_grant"), errors.PermissionDeniedError, "own account"),
        ("/token", 400, refusal("invalid_grant", "Token must be a short-lived token (60 minutes) "
         "and in a reasonable timeframe. Check your iat and exp values"),
         errors.ServiceUnavailableError, "clock"),
        (EXCHANGE, 403, refusal("access_denied"), errors.PermissionDeniedError, "roles"),
        (EXCHANGE, 401, refusal("invalid_client"), errors.PermissionDeniedError, "roles"),
        (EXCHANGE, 429, refusal("rateLimitExceeded"), errors.ThrottlingError, "later"),
        (EXCHANGE, 404, "no such page", errors.UnsupportedOperationError, "sts_endpoint"),
        (EXCHANGE, 501, "", errors.UnsupportedOperationError, "sts_endpoint"),
        (EXCHANGE, 503, "", errors.ServiceUnavailableError, ""),
        (EXCHANGE, 400, refusal("invalid_request"), errors.InternalError, ""),
        (EXCHANGE, 200, "<html>", errors.ServiceUnavailableError, "parsed"),
        (EXCHANGE, 200, "{}", errors.ServiceUnavailableError, "parsed"),
    ],
)  # fmt: skip
def test_what_google_refuses_is_an_error_of_its_own(
    google: Replies, key: str, *, path: str, status: int, body: str, expected: type[Exception],
    advice: str,
) -> None:  # fmt: skip
    google.by_path[path] = (status, body)
    with pytest.raises(expected, match=r"No credentials for table 'films\.reels'") as caught:
        vendor(google, key).vend(GRANT)
    assert type(caught.value) is expected
    assert advice in str(caught.value)
    assert OWN_TOKEN not in str(caught.value)


def test_an_account_that_may_not_be_impersonated_is_refused(google: Replies, key: str) -> None:
    body = {"error": {"code": 403, "status": "PERMISSION_DENIED"}}
    google.by_path[":generateAccessToken"] = (403, json.dumps(body))
    with pytest.raises(errors.PermissionDeniedError, match="Check service_account"):
        vendor(google, key, service_account=TARGET).vend(GRANT)


@pytest.mark.spec("common.md#rights-and-lifetime")
@pytest.mark.parametrize("is_silent", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_service_without_an_answer_is_given_up_in_time(
    google: Replies, key: str, is_silent: bool
) -> None:
    with unanswered(is_silent=is_silent) as address:
        start = time.monotonic()
        with pytest.raises(errors.ServiceUnavailableError, match="does not respond"):
            vendor(google, key, sts_endpoint=f"http://{address}").vend(GRANT)
    assert time.monotonic() - start < 30


def test_without_credentials_to_ask_with_it_says_so(
    google: Replies, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    made = GoogleVendor(GoogleOptions(sts_endpoint=google.address), {})
    with pytest.raises(errors.PermissionDeniedError, match=r"Set storage\.google_"):
        made.vend(GRANT)


@pytest.mark.spec("common.md#concurrency-and-crash-safety")
def test_a_child_process_does_not_wait_for_a_thread_of_its_parent(
    google: Replies, key: str
) -> None:
    made = vendor(google, key)
    with made._service._lock:  # as if another thread was searching for credentials
        assert returns_in_child(lambda: made.vend(GRANT))
    assert EXCHANGE in google.paths


@pytest.mark.spec("common.md#options-of-google")
def test_what_googles_tools_find_is_used(
    google: Replies, key: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "key.json"
    file.write_text(key)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
    GoogleVendor(GoogleOptions(sts_endpoint=google.address), {}).vend(GRANT)
    named = {"google_service_account": str(file)}
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS")
    GoogleVendor(GoogleOptions(sts_endpoint=google.address), named).vend(GRANT)
    assert [each["subject_token"] for each in google.forms[1::2]] == [OWN_TOKEN] * 2


@pytest.mark.parametrize(
    ("storage", "message"),
    [
        ({"google_service_account_key": "{secret"}, "is not JSON"),
        ({"service_account_key": '{"type": "authorized_user"}'}, "GOOGLE_APPLICATION_CREDENTIALS"),
        ({"google_service_account_key": '{"type": "service_account"}'}, "the service account's"),
        ({"google_service_account": "/no/such/file"}, "/no/such/file cannot be read"),
    ],
)
def test_own_credentials_of_no_use_are_refused_without_a_call(
    storage: dict[str, str], message: str
) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        GoogleVendor(GoogleOptions(), storage)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("account", ["x", "a@b.com", "../x@y.gserviceaccount.com", "a@b:c"])
def test_an_account_is_nothing_but_an_address(account: str) -> None:
    with pytest.raises(ValidationError, match="service_account"):
        GoogleOptions(service_account=account)
