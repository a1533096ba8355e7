"""What a session of AWS's vendor may do under its policy, as a real store enforces it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import boto3
import lance
import pyarrow as pa
import pytest
from adapters.vendors.grants import batch_files
from botocore.exceptions import ClientError
from servers.object_stores import MinioServer, needs_minio

from lance_bridge.credentials import Grant
from lance_bridge_vendors.aws import session_policy

pytestmark = [
    pytest.mark.servers,
    needs_minio,
    pytest.mark.spec("common.md#vending-rules", "server.md#governed-commits"),
]

ROWS = pa.table({"id": range(3)})
TABLE = "films.db/t.lance"
NEIGHBOURS = [f"{TABLE}_new/a", "films.db/u.lance/a", "films.db/t.lanc", "a"]


def session(
    minio: MinioServer,
    bucket: str,
    prefix: str = TABLE,
    *,
    write: bool = True,
    governed: bool = False,
) -> dict[str, str]:
    """Return the options of a session for a table."""
    grant = Grant("s3", bucket, prefix, ("films", "t"), write, governed)
    return minio.session_options(session_policy(grant, "aws"))


def client_of(options: Mapping[str, str]) -> Any:
    """Return a boto3 client that has nothing but these options."""
    return boto3.client(
        "s3",
        endpoint_url=options["aws_endpoint"],
        region_name=options["aws_region"],
        aws_access_key_id=options["aws_access_key_id"],
        aws_secret_access_key=options["aws_secret_access_key"],
        aws_session_token=options["aws_session_token"],
    )


def refused(call: Callable[..., Any], **arguments: Any) -> bool:
    """Return whether the store refuses a call."""
    with pytest.raises(ClientError) as caught:
        call(**arguments)
    return caught.value.response["Error"]["Code"] in ("AccessDenied", "403")


def creations(s3: Any, source: str) -> list[Callable[..., Any]]:
    """Return all calls that create an object."""
    return [
        s3.put_object,
        s3.create_multipart_upload,
        lambda **target: s3.copy_object(**target, CopySource=source),
    ]


@pytest.mark.spec("common.md#limits-of-vendors", "docs/how-to/credentials.md#what-was-run")
def test_a_session_reaches_its_table_and_nothing_else(minio: MinioServer, bucket: str) -> None:
    for key in NEIGHBOURS:
        minio.put(bucket, key)
    s3 = client_of(session(minio, bucket))
    own = {"Bucket": bucket, "Key": f"{TABLE}/a"}
    s3.put_object(**own, Body=b"x")
    assert s3.get_object(**own)["Body"].read() == b"x"
    assert s3.list_objects_v2(Bucket=bucket, Prefix=f"{TABLE}/")["KeyCount"] == 1
    for key in NEIGHBOURS:
        neighbour = {"Bucket": bucket, "Key": key}
        for call in (s3.get_object, s3.delete_object, *creations(s3, f"{bucket}/{TABLE}/a")):
            assert refused(call, **neighbour), (call, key)
        assert refused(s3.copy_object, **own, CopySource=f"{bucket}/{key}")
    for prefix in ("", TABLE, f"{TABLE}_new/", "films.db/u.lance/", "films.db/"):
        assert refused(s3.list_objects_v2, Bucket=bucket, Prefix=prefix), prefix
    several = {"Objects": [{"Key": key} for key in [*NEIGHBOURS, f"{TABLE}/a"]]}
    answer = s3.delete_objects(Bucket=bucket, Delete=several)
    assert [each["Key"] for each in answer["Deleted"]] == [f"{TABLE}/a"]
    assert minio.keys(bucket) == sorted(NEIGHBOURS)


def test_a_session_to_read_changes_nothing(minio: MinioServer, bucket: str) -> None:
    minio.put(bucket, f"{TABLE}/a")
    s3 = client_of(session(minio, bucket, write=False))
    own = {"Bucket": bucket, "Key": f"{TABLE}/a"}
    assert s3.get_object(**own)
    assert s3.list_objects_v2(Bucket=bucket, Prefix=f"{TABLE}/")["KeyCount"] == 1
    for call in (s3.delete_object, *creations(s3, f"{bucket}/{TABLE}/a")):
        assert refused(call, **own), call


@pytest.mark.parametrize("prefix", ["lake/*", "lake/?", "lake/${aws:username}", "lake/$"])
def test_a_location_is_no_pattern(minio: MinioServer, bucket: str, prefix: str) -> None:
    s3 = client_of(session(minio, bucket, prefix))
    for other in ("lake/t", "lake/tt", "lake/minio", "lake/test-access-key"):
        assert refused(s3.put_object, Bucket=bucket, Key=f"{other}/a"), other
        assert refused(s3.list_objects_v2, Bucket=bucket, Prefix=f"{other}/"), other


def test_a_governed_session_creates_no_manifest(minio: MinioServer, bucket: str) -> None:
    s3 = client_of(session(minio, bucket, governed=True))
    staged = f"{TABLE}/_versions/18446744073709551614.manifest-0f8e"
    s3.put_object(Bucket=bucket, Key=staged)
    s3.put_object(Bucket=bucket, Key=f"{TABLE}/data/a.lance")
    finals = [
        "_versions/18446744073709551614.manifest",
        "_versions/2.manifest",
        "_versions/d1.manifest",
        "tree/b/_versions/2.manifest",
    ]
    for name in finals:
        final = {"Bucket": bucket, "Key": f"{TABLE}/{name}"}
        for call in creations(s3, f"{bucket}/{staged}"):
            assert refused(call, **final), (call, name)


def test_a_governed_session_decides_on_no_batch(minio: MinioServer, bucket: str) -> None:
    s3 = client_of(session(minio, bucket, governed=True))
    staged = f"{TABLE}/_transactions/1.staged.json"
    s3.put_object(Bucket=bucket, Key=staged)
    for path in batch_files():
        own = {"Bucket": bucket, "Key": f"{TABLE}/{path}"}
        for call in creations(s3, f"{bucket}/{staged}"):
            assert refused(call, **own), (call, path)
        minio.put(bucket, own["Key"])
        assert refused(s3.delete_object, **own), path
        several = s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": own["Key"]}]})
        assert [each["Code"] for each in several["Errors"]] == ["AccessDenied"]
        assert s3.get_object(**own)
    s3.delete_object(Bucket=bucket, Key=staged)


def test_a_governed_session_cleans_up_old_versions(minio: MinioServer, bucket: str) -> None:
    location = f"s3://{bucket}/{TABLE}"
    for _ in range(3):
        lance.write_dataset(ROWS, location, mode="overwrite", storage_options=minio.storage_options)
    options = session(minio, bucket, governed=True)
    dataset = lance.dataset(location, storage_options=options)
    assert dataset.cleanup_old_versions(timedelta(0)).old_versions == 2
    assert lance.dataset(location, storage_options=options).to_table() == ROWS
    assert [each["version"] for each in dataset.versions()] == [3]


def test_a_session_keeps_older_versions_of_objects(minio: MinioServer, bucket: str) -> None:
    status = {"Status": "Enabled"}
    minio.client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration=status)
    own = {"Bucket": bucket, "Key": f"{TABLE}/a"}
    version = minio.client.put_object(**own, Body=b"x")["VersionId"]
    s3 = client_of(session(minio, bucket))
    s3.delete_object(**own)
    assert refused(s3.delete_object, **own, VersionId=version)
    assert s3.get_object(**own, VersionId=version)["Body"].read() == b"x"
