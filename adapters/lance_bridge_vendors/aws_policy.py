"""Session policies that limit a role to one table's objects. Pure functions.

A session's rights are the intersection of the role's and the policy's. Sources: AWS's "Session
policies", "IAM JSON policy elements: Resource", and "Policy variables", which define ``${$}``,
``${*}`` and ``${?}`` as the literal characters.
"""

from __future__ import annotations

import json
from typing import Any

from lance_bridge.credentials import Grant

VERSION = "2012-10-17"
"""The policy language version that has variables, and therefore these escapes."""
MAX_CHARACTERS = 2048
"""AWS's limit for the plain text of a session policy."""

_DOMAINS = {"aws": "amazonaws.com", "aws-cn": "amazonaws.com.cn", "aws-us-gov": "amazonaws.com"}
PARTITIONS = tuple(_DOMAINS)
"""The known partitions; the first is the default for S3-compatible stores."""
_READ = ["s3:GetObject", "s3:GetObjectVersion"]
_WRITE = ["s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"]
_FINAL_MANIFESTS = "*_versions/*.manifest"
"""Relative to the table, for every branch. Staged manifests do not match: they end in
``.manifest-`` and a UUID. Writers may delete final manifests, to clean up old versions."""
_BATCH_RECORDS = "*/_transactions/*.batch.json"
"""In any table, because policies are short. They decide versions of other tables, too."""
_MARK = "*/_versions/.manager.json"
"""In any table. It says which entry manages the versions."""

Statement = dict[str, Any]


def escape(text: str) -> str:
    """Return a text escaped so that a resource or a ``StringLike`` pattern matches it literally."""
    return text.replace("$", "${$}").replace("*", "${*}").replace("?", "${?}")


def session_policy(
    grant: Grant, partition: str, kms_key_arn: str | None = None, region: str | None = None
) -> str:
    """Return the policy for a grant, as JSON.

    Args:
        partition: The first part of ARNs: ``aws``, ``aws-cn``, ``aws-us-gov``.
        kms_key_arn: The key that encrypts the objects, which S3 may then use for the session.
        region: The bucket's region; required with a key.
    """
    bucket = f"arn:{partition}:s3:::{escape(grant.bucket)}"
    prefix = escape(grant.prefix)
    objects = f"{bucket}/{prefix}/*"
    statements: list[Statement] = [
        _allow(_READ + (_WRITE if grant.write else []), objects),
        # Without the slash, it would allow listing siblings whose names begin with the table's.
        _allow(["s3:ListBucket"], bucket, {"StringLike": {"s3:prefix": [f"{prefix}/*"]}}),
        _allow(["s3:GetBucketLocation"], bucket),
    ]
    if grant.write and grant.governed:
        table = f"{bucket}/{prefix}"
        statements += [
            _deny(["s3:PutObject"], f"{table}/{_FINAL_MANIFESTS}"),
            _deny(
                ["s3:PutObject", "s3:DeleteObject"],
                [f"arn:{partition}:s3:::{each}" for each in (_BATCH_RECORDS, _MARK)],
            ),
        ]
    if kms_key_arn:
        statements.append(_use_key(kms_key_arn, f"s3.{region}.{_DOMAINS[partition]}", grant.write))
    return policy_text(statements)


def policy_text(statements: list[Statement]) -> str:
    """Return the policy with these statements; without any, one that denies everything.

    A session without a policy would have all rights of its role.
    """
    nothing = {"Effect": "Deny", "Action": "*", "Resource": "*"}
    policy = {"Version": VERSION, "Statement": statements or [nothing]}
    return json.dumps(policy, separators=(",", ":"))


def _allow(actions: list[str], resource: str, condition: Any = None) -> Statement:
    statement: Statement = {"Effect": "Allow", "Action": actions, "Resource": resource}
    return {**statement, "Condition": condition} if condition else statement


def _deny(actions: list[str], resource: str | list[str]) -> Statement:
    return {"Effect": "Deny", "Action": actions, "Resource": resource}


def _use_key(key: str, service: str, write: bool) -> Statement:
    actions = ["kms:Decrypt"] + (["kms:GenerateDataKey"] if write else [])
    return _allow(actions, key, {"StringEquals": {"kms:ViaService": service}})
