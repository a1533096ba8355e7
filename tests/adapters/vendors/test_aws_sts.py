"""What STS is asked, and what its answers become. The answers are AWS's documented ones.

The double takes any signature and any policy: whether AWS would take them it cannot show.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from lance_namespace import errors
from lance_namespace.errors import LanceNamespaceError
from servers.glue_server import ACCESS_KEY, ROLE, SECRET_KEY
from servers.replies import Replies, reply_server, unanswered

from lance_bridge.credentials import EXPIRES_AT
from lance_bridge_vendors.aws import AwsOptions, AwsVendor, session_name, tag_value

from .grants import grant

pytestmark = pytest.mark.quick

KEYS = {"aws_access_key_id": ACCESS_KEY, "aws_secret_access_key": SECRET_KEY}
EXPIRES = datetime.now(timezone.utc).replace(microsecond=0) + timedelta(seconds=1800)


def session(action: str = "AssumeRole") -> str:
    """Return the answer with a session, which says its own end."""
    return (
        f'<{action}Response xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><{action}Result>'
        "<Credentials><AccessKeyId>ASIAEXAMPLE</AccessKeyId><SecretAccessKey>s</SecretAccessKey>"
        f"<SessionToken>t</SessionToken><Expiration>{EXPIRES:%Y-%m-%dT%H:%M:%SZ}</Expiration>"
        f"</Credentials></{action}Result></{action}Response>"
    )


def refusal(code: str, message: str = "said so") -> str:
    error = f"<Error><Type>Sender</Type><Code>{code}</Code><Message>{message}</Message></Error>"
    return f"<ErrorResponse>{error}<RequestId>1</RequestId></ErrorResponse>"


@pytest.fixture
def sts() -> Iterator[Replies]:
    with reply_server() as replies:
        replies.body = session()
        yield replies


def vendor(address: str | None, keys: Any = KEYS, **options: Any) -> AwsVendor:
    given = {"role_arn": ROLE, "region": "eu-west-1", "sts_endpoint": address, **options}
    return AwsVendor(AwsOptions.model_validate(given), keys)


@pytest.mark.spec("common.md#vending-rules")
def test_the_role_is_asked_for_a_session_with_the_policy(sts: Replies) -> None:
    options = vendor(sts.address, external_id="our-id", duration_seconds=900).vend(grant())
    [form] = sts.forms
    assert form["Action"] == "AssumeRole"
    assert form["RoleArn"] == ROLE
    assert form["ExternalId"] == "our-id"
    assert form["DurationSeconds"] == "900"
    assert json.loads(form["Policy"])["Version"] == "2012-10-17"
    assert form["RoleSessionName"] == "lance-bridge@films.reels"
    assert ACCESS_KEY in sts.headers[0]["authorization"]
    assert "/eu-west-1/sts/" in sts.headers[0]["authorization"]
    assert options["aws_access_key_id"] == "ASIAEXAMPLE"
    assert options["aws_region"] == "eu-west-1"
    assert int(options[EXPIRES_AT]) == int(EXPIRES.timestamp() * 1000)  # as STS says
    assert not {"Tags.member.1.Key", "SourceIdentity"} & form.keys()


@pytest.mark.spec("common.md#options-of-aws")
def test_a_session_can_carry_who_it_is_for(sts: Replies) -> None:
    made = vendor(sts.address, session_tags=True, source_identity=True)
    made.vend(grant(principal="ann@example.com"))
    [form] = sts.forms
    assert form["RoleSessionName"] == "ann@example.com@films.reels"
    assert form["SourceIdentity"] == "ann@example.com"
    tags = {form[f"Tags.member.{n}.Key"]: form[f"Tags.member.{n}.Value"] for n in (1, 2)}
    assert tags == {"principal": "ann@example.com", "table": "films.reels"}


@pytest.mark.parametrize("name", ["", "a", "x" * 300, "ann smith", "ann/../*", 'ü"\n', "a\ud7ffb"])
def test_names_of_sessions_have_the_characters_and_the_length_that_sts_takes(name: str) -> None:
    made = session_name(name or "-", "t")
    assert 2 <= len(made) <= 64
    assert all(each.isascii() and (each.isalnum() or each in "_+=,.@-") for each in made)
    assert len(tag_value(name)) <= 256
    assert not set(tag_value(name)) & set('"*\n')


def test_names_that_are_changed_stay_apart() -> None:
    assert session_name("ann smith") != session_name("ann-smith")
    assert session_name("x" * 90 + "1") != session_name("x" * 90 + "2")


@pytest.mark.spec("common.md#options-of-aws")
def test_a_web_identity_is_read_from_its_file_each_time(sts: Replies, tmp_path: Path) -> None:
    sts.body = session("AssumeRoleWithWebIdentity")
    file = tmp_path / "token"
    made = vendor(sts.address, keys={}, web_identity_token_file=str(file), session_tags=True)
    for token in ("first", "second"):
        file.write_text(f"{token}\n")
        made.vend(grant())
    assert [each["WebIdentityToken"] for each in sts.forms] == ["first", "second"]
    assert sts.forms[0]["Action"] == "AssumeRoleWithWebIdentity"
    assert "Policy" in sts.forms[0]
    assert "authorization" not in sts.headers[0]
    file.unlink()
    with pytest.raises(errors.ServiceUnavailableError, match="web_identity_token_file"):
        made.vend(grant())


@pytest.mark.spec("common.md#rights-and-lifetime", "common.md#vending-rules")
@pytest.mark.parametrize(
    ("status", "code", "message", "expected", "advice"),
    [
        (403, "AccessDenied", "no", errors.PermissionDeniedError, "trust policy"),
        (403, "InvalidClientTokenId", "no", errors.PermissionDeniedError, "own credentials"),
        (403, "ExpiredToken", "no", errors.PermissionDeniedError, ""),
        (403, "RegionDisabledException", "no", errors.PermissionDeniedError, ""),
        (400, "Throttling", "Rate exceeded", errors.ThrottlingError, "later"),
        (429, "", "", errors.ThrottlingError, ""),
        (400, "PackedPolicyTooLarge", "108%", errors.InvalidTableStateError, "too long"),
        (400, "ValidationError", "MaxSessionDuration", errors.InvalidInputError, "duration_sec"),
        (501, "NotImplemented", "no", errors.UnsupportedOperationError, "sts_endpoint"),
        (400, "InvalidAction", "no", errors.UnsupportedOperationError, ""),
        (404, "", "", errors.UnsupportedOperationError, ""),
        (403, "SignatureDoesNotMatch", "Signature expired: 1", errors.ServiceUnavailableError,
         "clock"),
        (400, "RequestExpired", "late", errors.ServiceUnavailableError, "clock"),
        (503, "ServiceUnavailable", "", errors.ServiceUnavailableError, ""),
        (400, "MalformedPolicyDocument", "bad", errors.InternalError, ""),
    ],
)  # fmt: skip
def test_what_sts_refuses_is_an_error_of_its_own(
    sts: Replies, *, status: int, code: str, message: str, expected: type[Exception], advice: str
) -> None:
    sts.status, sts.body = status, refusal(code, message)
    with pytest.raises(expected, match=r"No credentials for table 'films\.reels'") as caught:
        vendor(sts.address).vend(grant())
    assert type(caught.value) is expected
    assert advice in str(caught.value)
    assert SECRET_KEY not in str(caught.value)


def test_a_service_that_speaks_something_else_has_no_sessions(sts: Replies) -> None:
    sts.body, sts.content_type = "<html>a page</html", "text/html"
    with pytest.raises(LanceNamespaceError) as caught:
        vendor(sts.address).vend(grant())
    assert isinstance(caught.value, errors.ServiceUnavailableError)


@pytest.mark.spec("common.md#rights-and-lifetime")
@pytest.mark.parametrize("is_silent", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_an_sts_without_an_answer_is_given_up_in_time(is_silent: bool) -> None:
    with unanswered(is_silent=is_silent) as address:
        start = time.monotonic()
        with pytest.raises(errors.ServiceUnavailableError, match="does not respond"):
            vendor(f"http://{address}").vend(grant())
    assert time.monotonic() - start < 30


@pytest.mark.spec("common.md#rights-and-lifetime")
def test_without_credentials_to_ask_with_it_says_so(sts: Replies) -> None:
    with pytest.raises(errors.PermissionDeniedError, match=r"Set storage\.aws_"):
        vendor(sts.address, keys={}).vend(grant())


@pytest.mark.spec("common.md#options-of-aws")
@pytest.mark.parametrize(
    ("options", "storage", "message"),
    [
        ({"role_arn": "arn:aws-iso:iam::1:role/x"}, {}, "partition 'aws-iso', which is not known"),
        ({"role_arn": "arn:aws-cn:iam::1:role/x"}, {}, "'aws-cn', and region eu-west-1 in aws"),
        ({"region": "mars-1", "role_arn": "arn:aws:iam::1:role/x"}, {}, "mars-1"),
        ({}, {"endpoint": "http://minio:9000"}, "set sts_endpoint"),
        ({"endpoint": "https://minio"}, {}, "set sts_endpoint"),
        ({"region": None}, {}, "set region"),
    ],
)
def test_options_that_do_not_fit_are_refused_without_a_call(
    options: dict[str, str], storage: dict[str, str], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        vendor(None, storage, **options)


@pytest.mark.parametrize(
    ("region", "partition", "expected"),
    [
        ("cn-north-1", "aws-cn", "https://s3.cn-north-1.amazonaws.com.cn"),
        ("eu-central-1", "aws", None),
        ("us-gov-west-1", "aws-us-gov", None),
    ],
)
def test_the_endpoint_is_given_where_lance_would_look_elsewhere(
    sts: Replies, region: str, partition: str, expected: str | None
) -> None:
    made = vendor(sts.address, role_arn=f"arn:{partition}:iam::1:role/x", region=region)
    assert made.vend(grant()).get("aws_endpoint") == expected


def test_an_endpoint_of_the_storage_is_not_replaced(sts: Replies) -> None:
    storage = {**KEYS, "aws_endpoint": "https://bucket.s3.cn-north-1.amazonaws.com.cn"}
    role = "arn:aws-cn:iam::1:role/x"
    made = vendor(sts.address, storage, role_arn=role, region="cn-north-1")
    assert "aws_endpoint" not in made.vend(grant())


def test_a_store_that_is_not_amazons_may_have_any_role(sts: Replies) -> None:
    made = vendor(
        sts.address, role_arn="arn:minio:iam:::role/x", region="mars-1", endpoint=sts.address + "/"
    )
    options = made.vend(grant())
    assert options["aws_endpoint"] == sts.address
    assert options["allow_http"] == "true"
    assert "arn:aws:s3:::" in sts.forms[0]["Policy"]
