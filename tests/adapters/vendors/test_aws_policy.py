"""What session policies allow: their own table's objects, and no others, whatever the names."""

from __future__ import annotations

import json

import pytest
from adapters.vendors.hostile import COUNTS, is_own, locations, other_keys, own_keys
from adapters.vendors.iam import allows, matches
from lance_namespace.errors import InvalidTableStateError
from servers.glue_server import ROLE

from lance_bridge_vendors.aws import AwsOptions, AwsVendor
from lance_bridge_vendors.aws_policy import MAX_CHARACTERS, policy_text, session_policy

from .building import BUCKET, WRITERS_FILES, batch_files, grant

pytestmark = [pytest.mark.quick, pytest.mark.spec("common.md#vending-rules")]

PREFIX = "lake/films.db/reels.lance"
ARN = f"arn:aws:s3:::{BUCKET}"


def may(policy: str, action: str, key: str) -> bool:
    return allows(policy, f"s3:{action}", f"{ARN}/{key}")


def may_list(policy: str, prefix: str | None) -> bool:
    context = {} if prefix is None else {"s3_prefix": prefix}
    return allows(policy, "s3:ListBucket", ARN, **context)


# -- the evaluation itself, by AWS's examples ------------------------------------------------------


@pytest.mark.spec("common.md#limits-of-vendors")
@pytest.mark.parametrize(
    ("pattern", "value", "expected"),
    [
        # IAM JSON policy elements: Resource, "Specify resources using wildcards"
        ("arn:aws:s3:::DOC/*/test/*", "arn:aws:s3:::DOC/1/test/object.jpg", True),
        ("arn:aws:s3:::DOC/*/test/*", "arn:aws:s3:::DOC/1/2/test/3/object.jpg", True),
        ("arn:aws:s3:::DOC/*/test/*", "arn:aws:s3:::DOC/1-test/object.jpg", False),
        ("arn:aws:s3:::DOC/*/test/*", "arn:aws:s3:::DOC/test/object.jpg", False),
        ("arn:aws:s3:::DOC/*/test/*", "arn:aws:s3:::DOC/1/2/test.jpg", False),
        # Policy variables: of the request, and ${*}, ${?}, ${$}, which stand for themselves
        ("home/${aws:username}/*", "home/anna/x", True),
        ("home/${aws:username}/*", "home/bob/x", False),
        ("home/${aws:unknown}/*", "home//x", False),
        ("arn:aws:s3:::DOC/${*}", "arn:aws:s3:::DOC/*", True),
        ("arn:aws:s3:::DOC/${*}", "arn:aws:s3:::DOC/x", False),
        ("a${?}b${$}", "a?b$", True),
        ("a${?}b${$}", "axb$", False),
        ("a?c", "abc", True),
        ("a?c", "ac", False),
    ],
)
def test_patterns_match_as_in_the_documentation(pattern: str, value: str, expected: bool) -> None:
    assert matches(pattern, value, {"aws:username": "anna"}) is expected


def test_a_denial_wins_and_a_condition_on_a_missing_key_does_not_hold() -> None:
    """Source: "Policy evaluation logic", and the example of home directories in a bucket."""
    everything = {"Effect": "Allow", "Action": "s3:*", "Resource": "*"}
    no_put = {"Effect": "Deny", "Action": "s3:Put*", "Resource": "*"}
    policy = json.dumps({"Statement": [everything, no_put]})
    assert allows(policy, "s3:GetObject", "arn:aws:s3:::b/k")
    assert not allows(policy, "s3:PutObject", "arn:aws:s3:::b/k")
    home = {"StringLike": {"s3:prefix": ["", "home/", "home/${aws:username}/*"]}}
    listing = {**everything, "Action": "s3:ListBucket", "Condition": home}
    policy = json.dumps({"Statement": [listing]})
    bucket = "arn:aws:s3:::b"
    assert allows(policy, "s3:ListBucket", bucket, s3_prefix="home/anna/x", aws_username="anna")
    assert not allows(policy, "s3:ListBucket", bucket, s3_prefix="home/bob/", aws_username="anna")
    assert not allows(policy, "s3:ListBucket", bucket, aws_username="anna")


# -- rights ----------------------------------------------------------------------------------------


def test_readers_get_and_list_and_writers_also_put_and_delete() -> None:
    reader = session_policy(grant(write=False), "aws")
    writer = session_policy(grant(), "aws")
    key = f"{PREFIX}/data/1.lance"
    for action in ("GetObject", "GetObjectVersion"):
        assert may(reader, action, key)
        assert may(writer, action, key)
    for action in ("PutObject", "DeleteObject", "AbortMultipartUpload"):
        assert not may(reader, action, key)
        assert may(writer, action, key)
    for action in ("PutObjectAcl", "DeleteObjectVersion", "PutBucketPolicy", "GetObjectAcl"):
        assert not may(writer, action, key)
        assert not allows(writer, f"s3:{action}", ARN)


def test_a_table_is_listed_and_what_begins_with_its_name_is_not() -> None:
    policy = session_policy(grant(), "aws")
    assert may_list(policy, f"{PREFIX}/")
    assert may_list(policy, f"{PREFIX}/_versions/")
    for other in (None, "", "lake/", PREFIX, f"{PREFIX}2/", f"{PREFIX}2"):
        assert not may_list(policy, other)


def test_writers_of_a_governed_table_cannot_create_a_version() -> None:
    governed, free = (session_policy(grant(governed=each), "aws") for each in (True, False))
    staged = f"{PREFIX}/_versions/18446744073709551614.manifest-66aac37b-adee-470b-ad57-b83dceeb1"
    finals = ["_versions/18446744073709551614.manifest", "_versions/1.manifest",
              "_versions/d1.manifest", "tree/b/_versions/1.manifest"]  # fmt: skip
    for key in (staged, *(f"{PREFIX}/{each}" for each in WRITERS_FILES)):
        assert may(governed, "PutObject", key)
        assert may(governed, "DeleteObject", key)
    for final in finals:
        assert not may(governed, "PutObject", f"{PREFIX}/{final}")
        assert may(governed, "GetObject", f"{PREFIX}/{final}")
        assert may(governed, "DeleteObject", f"{PREFIX}/{final}")
        assert may(free, "PutObject", f"{PREFIX}/{final}")


@pytest.mark.spec("server.md#governed-commits")
@pytest.mark.parametrize("path", batch_files())
def test_writers_of_a_governed_table_cannot_decide_on_a_batch(path: str) -> None:
    governed, free, reader = (
        session_policy(grant(write=write, governed=each), "aws")
        for write, each in ((True, True), (True, False), (False, False))
    )
    for action in ("PutObject", "DeleteObject"):
        assert not may(governed, action, f"{PREFIX}/{path}")
        assert may(free, action, f"{PREFIX}/{path}")
    assert may(governed, "GetObject", f"{PREFIX}/{path}")
    assert may(reader, "GetObject", f"{PREFIX}/{path}")


def test_a_policy_without_statements_allows_nothing() -> None:
    for action in ("s3:GetObject", "s3:ListBucket", "kms:Decrypt", "iam:PassRole"):
        assert not allows(policy_text([]), action, f"{ARN}/{PREFIX}/x")
    assert json.loads(policy_text([]))["Statement"][0]["Effect"] == "Deny"


@pytest.mark.parametrize("partition", ["aws", "aws-cn", "aws-us-gov"])
def test_resources_are_in_the_partition(partition: str) -> None:
    policy = session_policy(grant(), partition)
    key = f"{BUCKET}/{PREFIX}/x"
    assert allows(policy, "s3:GetObject", f"arn:{partition}:s3:::{key}")
    assert policy.count("arn:") == policy.count(f"arn:{partition}:s3:::")


@pytest.mark.spec("common.md#options-of-aws")
def test_a_key_is_used_through_s3_of_its_region_alone() -> None:
    key = "arn:aws-cn:kms:cn-north-1:123456789012:key/1-2"
    policy = session_policy(grant(), "aws-cn", key, "cn-north-1")
    service = "s3.cn-north-1.amazonaws.com.cn"
    assert allows(policy, "kms:GenerateDataKey", key, kms_ViaService=service)
    assert not allows(policy, "kms:Decrypt", key)
    assert not allows(policy, "kms:Decrypt", key, kms_ViaService="s3.us-east-1.amazonaws.com")
    assert not allows(policy, "kms:Decrypt", f"{key}3", kms_ViaService=service)
    reader = session_policy(grant(write=False), "aws-cn", key, "cn-north-1")
    assert not allows(reader, "kms:GenerateDataKey", key, kms_ViaService=service)


# -- names -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", COUNTS)
def test_no_name_reaches_an_object_outside_its_table_or_fails_to_reach_its_own(count: int) -> None:
    arn = "arn:aws:s3:::bucket"
    outside = 0
    for number, (location, place) in enumerate(locations(count, "s3")):
        changes = {"bucket": place.bucket, "prefix": place.prefix}
        policy = session_policy(grant(**changes, governed=number % 2 == 0), "aws")
        for key in own_keys(place.prefix):
            assert allows(policy, "s3:PutObject", f"{arn}/{key}"), location
        assert allows(policy, "s3:ListBucket", arn, s3_prefix=f"{place.prefix}/"), location
        for key in other_keys(place.prefix, number):
            if not is_own(place.prefix, key):
                outside += 1
                assert not allows(policy, "s3:GetObject", f"{arn}/{key}"), (location, key)
                assert not allows(policy, "s3:ListBucket", arn, s3_prefix=key), (location, key)
    assert outside > 5 * count


def test_a_policy_is_plain_ascii_that_sts_takes() -> None:
    policy = session_policy(grant(prefix="lake/ü😀/t"), "aws")
    assert policy.isascii()
    assert may(policy, "GetObject", "lake/ü😀/t/x")


def test_a_policy_has_room_for_250_characters_of_a_location() -> None:
    """Every option that makes it longer is used."""
    key = "arn:aws-us-gov:kms:us-gov-west-1:123456789012:key/12345678-1234-1234-1234-123456789012"
    long = grant(bucket="b" * 30, prefix="a" * 250, governed=True)
    policy = session_policy(long, "aws-us-gov", key, "us-gov-west-1")
    assert len(policy) <= MAX_CHARACTERS


@pytest.mark.spec("common.md#rights-and-lifetime")
def test_a_location_that_no_policy_can_hold_is_refused_and_nothing_wider_asked() -> None:
    options = AwsOptions(role_arn=ROLE, region="us-east-1", sts_endpoint="http://127.0.0.1:1")
    vendor = AwsVendor(options, {})
    long = grant(prefix="a" * 100 + "*" * 300)
    assert len(session_policy(long, "aws")) > MAX_CHARACTERS
    with pytest.raises(InvalidTableStateError, match="too long for a session policy"):
        vendor.vend(long)
