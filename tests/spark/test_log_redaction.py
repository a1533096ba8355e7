"""What py4j logs of calls of the JVM, without the secrets in them."""

from __future__ import annotations

import logging
import pickle
from base64 import b64encode

import pytest

from lance_bridge_spark.redaction import redact_logs

pytestmark = [pytest.mark.quick, pytest.mark.spec("spark.md#credentials")]

SECRET = "hidden-hidden-hidden"


@pytest.mark.parametrize("logger", ["py4j.clientserver", "py4j.java_gateway"])
def test_no_function_and_no_secret_setting_is_in_what_py4j_logs(
    logger: str, caplog: pytest.LogCaptureFixture
) -> None:
    function = b64encode(pickle.dumps({"aws_secret_access_key": SECRET})).decode()
    redact_logs()
    redact_logs()
    log = logging.getLogger(logger)
    with caplog.at_level(logging.DEBUG):
        for command in (
            f"i\norg.apache.spark.api.python.SimplePythonFunction\nj{function}\ne\n",
            f"c\no12\nset\nsspark.sql.catalog.x.token\ns{SECRET}\ne\n",
            f"c\no12\nset\nsspark.sql.catalog.x.storage.anything.else\ns{SECRET}\ne\n",
            f"c\no12\noption\nsstorage.anything\ns{SECRET}\ne\n",
            "c\no12\nset\nsspark.sql.catalog.x.storage.aws_region\nseu\ne\n",
        ):
            log.debug("Command to send: {0}".format(command))  # noqa: UP030, UP032 - as py4j does
        log.debug("Command to send: c\no7\nget\nsspark.sql.catalog.x.token\ne\n")
        log.debug(f"Answer received: !ys{SECRET}")
        log.debug("Command to send: c\no14\n_1\ne\n")
        log.debug("Answer received: !ysspark.hadoop.fs.azure.account.key.box")
        log.debug("Command to send: c\no14\n_2\ne\n")
        log.debug(f"Answer received: !ys{SECRET}")
        log.debug("Command to send: c\no7\nget\nsspark.app.name\ne\n")
        log.debug("Answer received: !ysthe name")
    assert len(caplog.records) == 13
    assert SECRET not in caplog.text
    # The text is JSON once another test has made PySpark log so.
    logged = "\n".join(record.getMessage() for record in caplog.records)
    assert SECRET not in logged
    assert function[:40] not in logged
    assert "SimplePythonFunction" in logged
    assert "aws_region\nseu\n" in logged
    assert "!ysthe name" in logged
