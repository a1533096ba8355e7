"""What a ``uri`` must not hold, and that what it held by mistake is not repeated."""

from __future__ import annotations

import pytest
from lance_namespace.errors import InvalidInputError

from lance_bridge.config import load
from lance_bridge_hive.config import HiveConfig


@pytest.mark.parametrize(
    ("uri", "says"),
    [
        ("thrift://h:9083?token=hunter2", "must not have a query"),
        ("http://h/metastore?token=hunter2", "must not have a query"),
        ("http://h/metastore?a=b,token=hunter2", "must not have a query"),
        ("thrift://h:9083#hunter2", "must not have a query or fragment"),
        ("h:9083?token=hunter2", "must not have a query"),
        ("ftp://h?token=hunter2", "must not have a query"),
        ("thrift://h:x?token=hunter2", "must not have a query"),
        ("thrift://a,http://h/?token=hunter2", "must not have a query"),
        ("thrift://user:hunter2@h:9083", "auth.username and auth.password"),
        ("http://user:hunter2@h/metastore", "http.token"),
        ("thrift://user:hunter2,more@h:9083", "auth.username and auth.password"),
        ("thrift://user:hunter2%40h:9083", "malformed"),
        ("thrift://h:hunter2", "malformed"),
    ],
)
def test_what_a_uri_must_not_hold_is_refused_and_not_repeated(uri: str, says: str) -> None:
    with pytest.raises(InvalidInputError, match="property 'uri'") as caught:
        load(HiveConfig, "hive", {"uri": uri})
    assert says in str(caught.value)
    assert "hunter2" not in str(caught.value)
    assert "more" not in str(caught.value)
