"""What credentials of AWS and Google allow: their own table's objects, and no others.

Access boundaries are evaluated by `cel`, session policies as AWS's "Policy evaluation logic", "IAM
JSON policy elements: Resource" and "Policy variables" have it, whose examples are tests. What both
cannot show: how the vendors decide. Azure's signatures are in `test_azure_vendor`.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Protocol

import pytest
from adapters.vendors.grants import COUNTS, is_own, locations, other_keys, own_keys
from lance_namespace.errors import InvalidTableStateError
from servers.glue_server import ROLE

from lance_bridge.credentials import Grant
from lance_bridge_vendors import aws as aws_vendor
from lance_bridge_vendors import google as google_vendor
from lance_bridge_vendors.aws import AwsOptions, AwsVendor, policy_text, session_policy
from lance_bridge_vendors.google import (
    GoogleOptions,
    GoogleVendor,
    access_boundary,
    conditions,
)

from .grants import BUCKET, WRITERS_FILES, batch_files, grant

pytestmark = [pytest.mark.quick, pytest.mark.spec("common.md#vending-rules")]

PREFIX = "lake/films.db/reels.lance"
ARN = f"arn:aws:s3:::{BUCKET}"
ACTIONS = {
    "get": "GetObject",
    "create": "PutObject",
    "update": "PutObject",
    "delete": "DeleteObject",
}
HAS_CEL = sys.version_info >= (3, 11)
without_cel = pytest.mark.skipif(not HAS_CEL, reason="cel-expr-python is for Python 3.11 and later")
if HAS_CEL:
    from .grants import Boundary, condition, holds
_TOKEN = re.compile(r"\$\{([^}]*)\}|([*?])|(.)", re.DOTALL)
_SPECIAL = "$*?"


class Rights(Protocol):
    """Whether credentials allow to get, create, update or delete an object, and to list."""

    def allows(self, right: str, key: str) -> bool: ...
    def lists(self, prefix: str | None) -> bool: ...


class Policy:
    """The rights of a session policy."""

    def __init__(self, made: Grant) -> None:
        self.text = session_policy(made, "aws")
        self._bucket = f"arn:aws:s3:::{made.bucket}"

    def allows(self, right: str, key: str) -> bool:
        return allows(self.text, f"s3:{ACTIONS[right]}", f"{self._bucket}/{key}")

    def lists(self, prefix: str | None) -> bool:
        context = {} if prefix is None else {"s3_prefix": prefix}
        return allows(self.text, "s3:ListBucket", self._bucket, **context)


def boundary(made: Grant) -> Rights:
    return Boundary(access_boundary(made), made.bucket)


RightsOf = Callable[[Grant], Rights]
of_each = pytest.mark.parametrize(
    "rights_of",
    [pytest.param(Policy, id="aws"), pytest.param(boundary, id="google", marks=without_cel)],
)


# -- of both -------------------------------------------------------------------------------------


@of_each
def test_readers_get_and_list_and_writers_also_create_and_delete(rights_of: RightsOf) -> None:
    reader, writer = rights_of(grant(write=False)), rights_of(grant())
    key = f"{PREFIX}/data/1.lance"
    assert reader.allows("get", key)
    assert writer.allows("get", key)
    for right in ("create", "delete"):
        assert not reader.allows(right, key)
        assert writer.allows(right, key)


@of_each
@pytest.mark.parametrize("write", [True, False])
def test_a_table_is_listed_and_what_begins_with_its_name_is_not(
    rights_of: RightsOf, write: bool
) -> None:
    rights = rights_of(grant(write=write))
    assert rights.lists(f"{PREFIX}/")
    assert rights.lists(f"{PREFIX}/_versions/")
    for other in (None, "", "lake/", PREFIX, f"{PREFIX}2/", f"{PREFIX}2"):
        assert not rights.lists(other)


@of_each
def test_writers_of_a_governed_table_cannot_create_a_version(rights_of: RightsOf) -> None:
    governed, free = (rights_of(grant(governed=each)) for each in (True, False))
    staged = f"{PREFIX}/_versions/18446744073709551614.manifest-66aac37b-adee-470b-ad57-b83dceeb1"
    finals = ["_versions/18446744073709551614.manifest", "_versions/1.manifest",
              "_versions/d1.manifest", "tree/b/_versions/1.manifest"]  # fmt: skip
    for key in (staged, *(f"{PREFIX}/{each}" for each in WRITERS_FILES)):
        assert governed.allows("create", key)
        assert governed.allows("delete", key)
    for final in finals:
        assert not governed.allows("create", f"{PREFIX}/{final}")
        assert governed.allows("get", f"{PREFIX}/{final}")
        assert free.allows("create", f"{PREFIX}/{final}")
    assert governed.lists(f"{PREFIX}/_versions/")


@pytest.mark.spec("server.md#governed-commits")
@of_each
@pytest.mark.parametrize("path", batch_files())
def test_writers_of_a_governed_table_cannot_decide_on_a_batch(
    rights_of: RightsOf, path: str
) -> None:
    governed, free = (rights_of(grant(governed=each)) for each in (True, False))
    for right in ("create", "update", "delete"):
        assert not governed.allows(right, f"{PREFIX}/{path}")
        assert free.allows(right, f"{PREFIX}/{path}")
    for rights in (governed, rights_of(grant(write=False))):
        assert rights.allows("get", f"{PREFIX}/{path}")


@of_each
@pytest.mark.parametrize("count", COUNTS)
def test_no_name_reaches_an_object_outside_its_table_or_fails_to_reach_its_own(
    rights_of: RightsOf, count: int
) -> None:
    scheme, outside = "gs" if rights_of is boundary else "s3", 0
    for number, (location, place) in enumerate(locations(count, scheme)):
        made = grant(bucket=place.bucket, prefix=place.prefix, governed=number % 2 == 0)
        rights = rights_of(made)
        for key in own_keys(place.prefix):
            assert rights.allows("create", key), location
        assert rights.lists(f"{place.prefix}/"), location
        for key in other_keys(place.prefix, number):
            if not is_own(place.prefix, key):
                outside += 1
                assert not rights.allows("get", key), (location, key)
                assert not rights.lists(key), (location, key)
    assert outside > 5 * count


@pytest.mark.spec("common.md#rights-and-lifetime")
def test_a_location_that_no_limit_can_hold_is_refused_and_nothing_wider_asked() -> None:
    long = grant(prefix="a" * 100 + "*" * 300)
    assert len(session_policy(long, "aws")) > aws_vendor.MAX_CHARACTERS
    aws = AwsOptions(role_arn=ROLE, region="us-east-1", sts_endpoint="http://127.0.0.1:1")
    with pytest.raises(InvalidTableStateError, match="too long for a session policy"):
        AwsVendor(aws, {}).vend(long)
    long = grant(prefix='a"' * 700)
    assert max(map(len, conditions(access_boundary(long)))) > google_vendor.MAX_CHARACTERS
    with pytest.raises(InvalidTableStateError, match="too long for a condition"):
        GoogleVendor(GoogleOptions(sts_endpoint="http://127.0.0.1:1"), {}).vend(long)


# -- of AWS alone, and IAM's evaluation by AWS's examples ------------------------------------------


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


def test_writers_change_objects_alone_and_reach_all_their_parts() -> None:
    reader, writer = Policy(grant(write=False)).text, Policy(grant()).text
    key = f"{ARN}/{PREFIX}/data/1.lance"
    assert allows(reader, "s3:GetObjectVersion", key)
    assert allows(writer, "s3:GetObjectVersion", key)
    assert allows(writer, "s3:AbortMultipartUpload", key)
    assert not allows(reader, "s3:AbortMultipartUpload", key)
    for action in ("PutObjectAcl", "DeleteObjectVersion", "PutBucketPolicy", "GetObjectAcl"):
        assert not allows(writer, f"s3:{action}", key)
        assert not allows(writer, f"s3:{action}", ARN)


def test_writers_of_a_governed_table_delete_old_versions() -> None:
    assert Policy(grant(governed=True)).allows("delete", f"{PREFIX}/_versions/1.manifest")


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


def test_a_policy_is_plain_ascii_that_sts_takes() -> None:
    policy = session_policy(grant(prefix="lake/ü😀/t"), "aws")
    assert policy.isascii()
    assert allows(policy, "s3:GetObject", f"{ARN}/lake/ü😀/t/x")


def test_a_policy_has_room_for_250_characters_of_a_location() -> None:
    """Every option that makes it longer is used."""
    key = "arn:aws-us-gov:kms:us-gov-west-1:123456789012:key/12345678-1234-1234-1234-123456789012"
    long = grant(bucket="b" * 30, prefix="a" * 250, governed=True)
    policy = session_policy(long, "aws-us-gov", key, "us-gov-west-1")
    assert len(policy) <= aws_vendor.MAX_CHARACTERS


# -- of Google alone, and CEL's evaluation by Google's examples ------------------------------------


@without_cel
@pytest.mark.spec("common.md#limits-of-vendors")
@pytest.mark.parametrize(
    ("resource", "prefix", "expected"),
    [
        ("projects/_/buckets/example-bucket/objects/customer-a/invoice.pdf", None, True),
        ("projects/_/buckets/example-bucket/objects/customer-b/invoice.pdf", None, False),
        ("projects/_/buckets/example-bucket/objects/x/customer-a", None, False),
        ("projects/_/buckets/example-bucket", "customer-a/", True),
        ("projects/_/buckets/example-bucket", "customer-b/", False),
        ("projects/_/buckets/example-bucket", None, False),
    ],
)
def test_conditions_hold_as_in_the_documentation(
    resource: str, prefix: str | None, expected: bool
) -> None:
    """Source: "Limit permissions for specific objects" and "… when listing objects"."""
    compiled = condition(
        "resource.name.startsWith('projects/_/buckets/example-bucket/objects/customer-a') || "
        "api.getAttribute('storage.googleapis.com/objectListPrefix', '').startsWith('customer-a')"
    )
    assert holds(compiled, resource, prefix) is expected


def test_nobody_changes_who_may_read_an_object() -> None:
    roles = [
        rule["availablePermissions"]
        for write in (True, False)
        for rule in access_boundary(grant(write=write))["accessBoundary"]["accessBoundaryRules"]
    ]
    assert roles == [["inRole:roles/storage.objectUser"], ["inRole:roles/storage.objectViewer"]]


# -- an evaluation of IAM's policies ---------------------------------------------------------------


def matches(pattern: str, value: str, context: Mapping[str, str] | None = None) -> bool:
    """Return whether a resource or a pattern of ``StringLike`` matches a value."""
    found = _expression(pattern, tuple(sorted((context or {}).items())))
    return found is not None and found.fullmatch(value) is not None


@lru_cache(maxsize=64)
def _expression(pattern: str, context: tuple[tuple[str, str], ...]) -> re.Pattern[str] | None:
    """Return a pattern as a regular expression; None with a variable that is unknown."""
    known, found = dict(context), ""
    for variable, wildcard, literal in _TOKEN.findall(pattern):
        if wildcard:
            found += ".*" if wildcard == "*" else "."
        elif variable and variable not in _SPECIAL:
            if variable not in known:
                return None
            found += re.escape(known[variable])
        else:
            found += re.escape(variable or literal)
    return re.compile(found, re.DOTALL)


def allows(policy: str, action: str, resource: str, **context: str) -> bool:
    """Return whether a policy allows an action: by a statement, and denied by none.

    Args:
        context: Keys of conditions, with ``_`` for ``:``.
    """
    keys = {key.replace("_", ":", 1): value for key, value in context.items()}
    variables = {key: value for key, value in keys.items() if key.startswith("aws:")}
    applying = [
        each["Effect"]
        for each in _statements(policy)
        if any(matches(a.lower(), action.lower()) for a in _list(each["Action"]))
        and any(matches(r, resource, variables) for r in _list(each["Resource"]))
        and all(_holds(o, k, v, keys) for o, c in each.get("Condition", {}).items()
                for k, v in c.items())
    ]  # fmt: skip
    return "Allow" in applying and "Deny" not in applying


@lru_cache(maxsize=8)
def _statements(policy: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(policy)["Statement"]
    return found


def _holds(operator: str, key: str, values: Any, context: Mapping[str, str]) -> bool:
    if key not in context:
        return False
    if operator == "StringEquals":
        return context[key] in _list(values)
    assert operator == "StringLike"
    variables = {each: value for each, value in context.items() if each.startswith("aws:")}
    return any(matches(each, context[key], variables) for each in _list(values))


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
