"""What AWS STS is asked, what its answers become, and how its sessions are handed out and renewed.

The answers are AWS's documented ones, or moto's. Neither looks at signatures and policies: whether
AWS would take them these tests cannot show.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import lance
import lance_namespace as api
import pyarrow as pa
import pytest
from core.memory_catalog import MemoryNamespace
from lance_namespace import errors
from lance_namespace.errors import InvalidTableStateError, LanceNamespaceError
from servers.glue_server import ACCESS_KEY, ROLE, SECRET_KEY, GlueServer
from servers.http_proxy import HttpProxy
from servers.metastores import Metastores
from servers.processes import returns_in_child
from servers.replies import Replies, reply_server, unanswered
from servers.unity import OPEN_SOURCE_0_6, UnityServer
from stores.short_lived import key_of

import lance_bridge
from lance_bridge.credentials import EXPIRES_AT, REFRESH_OFFSET, Caller, CredentialCache, acting_for
from lance_bridge.testing.calls import Calls
from lance_bridge_vendors.aws import AwsOptions, AwsVendor, session_name, tag_value

from .grants import BUCKET, TABLE, aws_properties, grant, memory_namespace

pytestmark = pytest.mark.quick

# -- requests to STS and its answers ---------------------------------------------------------------


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


# -- sessions of moto's STS ------------------------------------------------------------------------


ROWS = pa.table({"a": [1, 2, 3]})


@pytest.fixture
def namespace(aws: GlueServer, request: pytest.FixtureRequest) -> MemoryNamespace:
    root = f"s3://{BUCKET}/{abs(hash(request.node.nodeid)):x}"
    properties = {**aws_properties(aws), "root": root, "credentials.write": "true"}
    return memory_namespace(request.node.nodeid, **properties)


def described(namespace: Any, **more: Any) -> dict[str, str]:
    answer = namespace.describe_table(api.DescribeTableRequest(id=TABLE, **more))
    return answer.storage_options or {}


@pytest.mark.servers
@pytest.mark.spec("common.md#storage-credentials", "common.md#vending-rules")
def test_clients_get_a_session_and_never_the_key_that_made_it(
    namespace: MemoryNamespace,
) -> None:
    lance.write_dataset(ROWS, namespace_client=namespace, table_id=TABLE)
    options = described(namespace)
    assert options["aws_access_key_id"].startswith("ASIA")
    assert options["aws_session_token"]
    assert not {ACCESS_KEY, SECRET_KEY} & set(options.values())
    life = int(options[EXPIRES_AT]) / 1000 - time.time()
    assert 3590 < life < 3610
    assert options[REFRESH_OFFSET] == "300000"


@pytest.mark.servers
@pytest.mark.spec(
    "common.md#storage-credentials", "common.md#vending-rules", "common.md#rights-and-lifetime"
)
def test_lance_renews_it_while_it_writes_and_reads(
    namespace: MemoryNamespace, aws: GlueServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that come for longer than a session lasts are written: an expired key is refused."""
    keys: set[str] = set()
    describe = MemoryNamespace.describe_table

    def noted(self: MemoryNamespace, request: Any) -> Any:
        answer = describe(self, request)
        keys.add((answer.storage_options or {})["aws_access_key_id"])
        return answer

    monkeypatch.setattr(MemoryNamespace, "describe_table", noted)

    def slowly() -> Iterator[pa.RecordBatch]:
        until = time.monotonic() + 14
        while time.monotonic() < until:
            time.sleep(0.25)
            yield ROWS.to_batches()[0]

    with aws.short_sessions(4):
        lance.write_dataset(ROWS, namespace_client=namespace, table_id=TABLE)
        lance.write_dataset(
            pa.RecordBatchReader.from_batches(ROWS.schema, slowly()),
            namespace_client=namespace, table_id=TABLE, mode="append", max_rows_per_file=3,
        )  # fmt: skip
        opened = lance.dataset(namespace_client=namespace, table_id=TABLE)
        read = sum(batch.num_rows for batch in opened.to_batches())
    assert read > 30
    assert len(keys) > 3


def sts_vendor(address: str) -> AwsVendor:
    options = AwsOptions(role_arn=ROLE, region="eu-west-1", sts_endpoint=address)
    keys = {"aws_access_key_id": ACCESS_KEY, "aws_secret_access_key": SECRET_KEY}
    return AwsVendor(options, keys)


@pytest.mark.servers
@pytest.mark.spec(
    "common.md#storage-credentials",
    "common.md#vending-rules",
    "common.md#concurrency-and-crash-safety",
)
def test_a_child_process_uses_no_connection_of_its_parent(aws: GlueServer) -> None:
    with HttpProxy(aws.endpoint) as sts:
        vendor = sts_vendor(sts.endpoint)
        vendor.vend(grant())
        assert returns_in_child(lambda: vendor.vend(grant()))
        vendor.vend(grant())
        assert sts.counts["AssumeRole"] == 3
        assert sts.connections == 2


@pytest.mark.servers
@pytest.mark.spec(
    "common.md#storage-credentials",
    "common.md#vending-rules",
    "common.md#concurrency-and-crash-safety",
)
def test_a_child_process_does_not_wait_for_a_thread_of_its_parent(aws: GlueServer) -> None:
    vendor = sts_vendor(aws.endpoint)
    with vendor._sts._lock:  # as if another thread was making the client
        assert returns_in_child(lambda: vendor.vend(grant()))


# -- clients whose clock is off -------------------------------------------------------------------
#
# A client whose clock is behind by some seconds believes, when its session ends, that it has so
# many left. So the answers say when the session ends by that clock, and the sessions end then.


FILES = 3
OFFSET_SECONDS = 300


class AtTheEnd(MemoryNamespace):
    """Answers with a new session each time, which ends now by all clocks but the client's."""

    behind: float
    """By how many seconds the client's clock is behind."""
    keys: list[str]

    def describe_table(self, request: api.DescribeTableRequest) -> api.DescribeTableResponse:
        """As the base class."""
        self.connection.credentials._cache = CredentialCache()
        answer = super().describe_table(request)
        options = answer.storage_options or {}
        assert int(options[REFRESH_OFFSET]) == OFFSET_SECONDS * 1000
        options[EXPIRES_AT] = str(int((time.time() + self.behind) * 1000))
        self.keys.append(options["aws_access_key_id"])
        return answer


@pytest.fixture(scope="module")
def properties(aws: GlueServer) -> dict[str, str]:
    """A catalog with one table, of several files that Lance does not read to open it."""
    given = {**aws_properties(aws), "root": f"s3://{BUCKET}/clocks"}
    rows = pa.table({"id": range(FILES), "image": [bytes(1 << 17)] * FILES})
    lance.write_dataset(
        rows, namespace_client=memory_namespace(__name__, **given), table_id=TABLE,
        max_rows_per_file=1,
    )  # fmt: skip
    return given


@pytest.fixture
def at_the_end(aws: GlueServer, properties: dict[str, str]) -> Iterator[AtTheEnd]:
    made = AtTheEnd(uri=__name__, **properties)
    made.keys = []
    with aws.known_keys_only():
        yield made


@pytest.mark.servers
@pytest.mark.spec(
    "common.md#storage-credentials", "common.md#vending-rules", "common.md#rights-and-lifetime"
)
@pytest.mark.parametrize("behind", [OFFSET_SECONDS - 60, -7200])
def test_a_clock_that_is_behind_by_less_than_the_offset_or_ahead_is_no_trouble(
    at_the_end: AtTheEnd, aws: GlueServer, behind: float
) -> None:
    at_the_end.behind = behind
    fragments = lance.dataset(namespace_client=at_the_end, table_id=TABLE).get_fragments()
    for fragment in fragments:
        aws.end_sessions()
        assert fragment.to_table().num_rows == 1
    assert len(set(at_the_end.keys)) > FILES


@pytest.mark.servers
@pytest.mark.spec(
    "common.md#storage-credentials", "common.md#vending-rules", "common.md#rights-and-lifetime"
)
def test_a_clock_that_is_behind_by_more_than_the_offset_is_refused_by_the_store(
    at_the_end: AtTheEnd, aws: GlueServer
) -> None:
    at_the_end.behind = OFFSET_SECONDS + 60
    fragments = lance.dataset(namespace_client=at_the_end, table_id=TABLE).get_fragments()
    assert fragments[0].to_table().num_rows == 1
    aws.end_sessions()
    with pytest.raises(ValueError, match="lacked the necessary privileges"):
        fragments[1].to_table()
    assert len(at_the_end.keys) == 1
    opened = api.DescribeTableRequest(id=TABLE)
    assert at_the_end.describe_table(opened)
    assert lance.dataset(namespace_client=at_the_end, table_id=TABLE).count_rows() == FILES


# -- on each catalog: a real metastore, Glue, and Unity's double ----------------------------------
#
# The store and its STS are moto's, in a process of its own, behind a proxy that shows what comes.


CATALOGS = ["hive", "glue", "unity"]


@dataclass
class Lake:
    """An empty namespace of a catalog, whose tables' credentials are the vendor's."""

    calls: Calls
    namespace: api.LanceNamespace
    path: list[str]
    store: HttpProxy
    catalog: HttpProxy | None
    """The catalog, where it speaks HTTP."""

    @property
    def policies(self) -> list[str]:
        """The session policies that STS was asked for."""
        bodies = [each.body for each in self.store.requests if each.key == "AssumeRole"]
        return [parse_qs(body.decode())["Policy"][0] for body in bodies]

    @property
    def keys(self) -> set[str]:
        """The keys that objects were read and written with."""
        objects = [each for each in self.store.requests if each.key != "AssumeRole"]
        return {key_of(request) for request in objects}


@pytest.fixture
def lake(aws: GlueServer, metastores: Metastores, request: pytest.FixtureRequest) -> Iterator[Lake]:
    impl = request.param
    with ExitStack() as stack:
        store = stack.enter_context(HttpProxy(aws.endpoint))
        given = {
            **aws_properties(aws),
            "storage.aws_endpoint": store.endpoint,
            "credentials.endpoint": store.endpoint,
            "credentials.sts_endpoint": store.endpoint,
            "credentials.write": "true",
        }
        catalog, parent = None, []
        if impl == "hive":
            given["uri"] = metastores.get("2.3").uri
        elif impl == "glue":
            catalog = stack.enter_context(HttpProxy(aws.endpoint))
            given |= {**aws.properties, "endpoint": catalog.endpoint}
        else:
            server = stack.enter_context(UnityServer(OPEN_SOURCE_0_6))
            server.add_catalog("c")
            catalog, parent = stack.enter_context(HttpProxy(server.url)), ["c"]
            given["endpoint"] = catalog.endpoint
        namespace = lance_bridge.connect(impl, given)
        assert isinstance(namespace, lance_bridge.LanceBridgeNamespace)
        stack.enter_context(namespace)
        calls, path = Calls(namespace), [*parent, f"db_{uuid.uuid4().hex[:12]}"]
        calls.create_namespace(path)
        store.reset()
        stack.enter_context(aws.known_keys_only())
        yield Lake(calls, namespace, path, store, catalog)


@pytest.mark.servers
@pytest.mark.spec("common.md#storage-credentials", "common.md#vending-rules")
@pytest.mark.parametrize("lake", CATALOGS, indirect=True)
def test_a_table_is_written_and_read_with_sessions_alone(lake: Lake) -> None:
    table = [*lake.path, "t"]
    for mode in ("create", "append"):
        lance.write_dataset(ROWS, namespace_client=lake.namespace, table_id=table, mode=mode)
    assert lance.dataset(namespace_client=lake.namespace, table_id=table).count_rows() == 6
    assert lake.calls.count(table) == 6
    options = lake.calls.describe_table(table).storage_options or {}
    assert options["aws_access_key_id"] in lake.keys
    assert ACCESS_KEY not in {*lake.keys, *options.values()}
    assert all(key.startswith("ASIA") for key in lake.keys)
    # To see that the location is free, before there is an entry; to write; to read.
    assert len(lake.policies) == 3
    if lake.catalog is not None:
        assert not any("temporary" in key.lower() for key in lake.catalog.counts)


@pytest.mark.servers
@pytest.mark.spec("common.md#storage-credentials", "common.md#vending-rules")
@pytest.mark.parametrize("lake", ["hive", "glue"], indirect=True)
def test_writers_of_a_governed_table_are_denied_its_versions(lake: Lake) -> None:
    table = [*lake.path, "t"]
    lake.calls.declare_table(table, properties={"managed_by": "impl"})
    denied = [policy.count('"Deny"') for policy in lake.policies]
    # The last one is the client's; with the others, the namespace itself looks at the location.
    assert denied[-1] == 2
    assert set(denied[:-1]) <= {0}
    lance.write_dataset(ROWS, namespace_client=lake.namespace, table_id=table, mode="append")
    assert lance.dataset(namespace_client=lake.namespace, table_id=table).count_rows() == 3
    request = api.ListTableVersionsRequest(id=table)
    versions = lake.namespace.list_table_versions(request).versions
    assert [each.version for each in versions] == [1]


@pytest.mark.servers
@pytest.mark.spec("common.md#storage-credentials", "common.md#vending-rules")
@pytest.mark.parametrize("lake", CATALOGS, indirect=True)
def test_a_location_inside_another_tables_gets_none(lake: Lake) -> None:
    table, inner = [*lake.path, "t"], [*lake.path, "inner"]
    location = lake.calls.declare_table(table).location
    lake.calls.register_table(inner, f"{location}/data")
    asked = len(lake.policies)
    principal = acting_for(Caller("anna", lambda _: True))
    with principal, pytest.raises(InvalidTableStateError, match="overlaps"):
        lake.calls.describe_table(inner)
    assert len(lake.policies) == asked
    assert lake.calls.describe_table(inner, vend_credentials=False).location
