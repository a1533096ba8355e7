"""How Azure's storage checks a shared access signature for a directory.

Written from "Create a user delegation SAS": the service takes as many segments of the request's
path as the signature's depth says, and signs what it was given with them. What it cannot show: that
Azure does so.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from urllib.parse import parse_qsl

_KEY_FIELDS = ("skoid", "sktid", "skt", "ske", "sks", "skv", "saoid", "suoid", "scid", "skdutid",
               "sduoid")  # fmt: skip
_OTHER_FIELDS = ("sip", "spr", "sv", "sr", "snapshot", "ses", "srh", "srq", "rscc", "rscd", "rsce",
                 "rscl", "rsct")  # fmt: skip


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
