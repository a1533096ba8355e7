"""Kerberos, against a real key distribution centre and a metastore that demands tickets."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from lance_namespace.errors import UnauthenticatedError
from servers.processes import free_port

from lance_bridge.config import load
from lance_bridge_hive.config import HiveConfig
from lance_bridge_hive.transport import ClientPool
from lance_bridge_metastore import Metastore

pytestmark = [
    pytest.mark.servers,
    pytest.mark.spec(
        "common.md#errors-of-every-operation",
        "docs/how-to/hive.md#what-was-run",
        "hive.md#errors-of-every-operation",
    ),
]

_REQUIRED = "LANCE_BRIDGE_TEST_KERBEROS"
_REALM = "LANCE.TEST"
_SERVICE = f"hive/localhost@{_REALM}"
_PROGRAMS = ("krb5kdc", "kdb5_util", "kadmin.local", "kinit")
_PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"])
_SECONDS = 20


def _require_kerberos() -> None:
    missing = [name for name in _PROGRAMS if shutil.which(name, path=_PATH) is None]
    if importlib.util.find_spec("kerberos") is None:
        missing.append("the Python package kerberos")
    if missing:
        reason = f"Kerberos tests need {', '.join(missing)}"
        if os.environ.get(_REQUIRED) == "1":
            pytest.fail(f"{reason}, and {_REQUIRED}=1 says that they must run")
        pytest.skip(f"{reason} (Debian: krb5-kdc krb5-admin-server krb5-user libkrb5-dev)")


class Kdc:
    """A key distribution centre of one test, with one service and one user."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.keytab = directory / "hive.keytab"
        self.tickets = directory / "tickets"
        self._port = free_port()
        self.config = directory / "krb5.conf"
        self.environment = {
            **os.environ,
            "PATH": _PATH,
            "KRB5_CONFIG": str(self.config),
            "KRB5_KDC_PROFILE": str(directory / "kdc.conf"),
            "KRB5CCNAME": f"FILE:{self.tickets}",
        }
        self._write_configuration()
        self._run("kdb5_util", "create", "-s", "-r", _REALM, "-P", "master")
        self._admin(f"addprinc -randkey {_SERVICE}")
        self._admin(f"ktadd -k {self.keytab} {_SERVICE}")
        self._admin("addprinc -pw secret alice")
        self._process = subprocess.Popen(["krb5kdc", "-n"], env=self.environment)

    def log_in(self) -> None:
        """Get a ticket for alice; waits for the centre to answer."""
        deadline = time.monotonic() + _SECONDS
        while True:
            done = subprocess.run(
                ["kinit", "alice"],
                env=self.environment,
                input="secret\n",
                text=True,
                capture_output=True,
                timeout=_SECONDS,
                check=False,
            )
            if done.returncode == 0:
                return
            assert time.monotonic() < deadline, done.stderr
            time.sleep(0.1)

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait(_SECONDS)

    def _write_configuration(self) -> None:
        self.config.write_text(
            f"""[libdefaults]
default_realm = {_REALM}
dns_lookup_kdc = false
dns_canonicalize_hostname = false
rdns = false
udp_preference_limit = 1
[realms]
{_REALM} = {{
  kdc = 127.0.0.1:{self._port}
}}
"""
        )
        (self.directory / "kdc.conf").write_text(
            f"""[kdcdefaults]
kdc_listen = 127.0.0.1:{self._port}
kdc_tcp_listen = 127.0.0.1:{self._port}
[realms]
{_REALM} = {{
  database_name = {self.directory}/principal
  key_stash_file = {self.directory}/stash
  acl_file = {self.directory}/acl
}}
"""
        )

    def _admin(self, query: str) -> None:
        self._run("kadmin.local", "-r", _REALM, "-q", query)

    def _run(self, *command: str) -> None:
        subprocess.run(
            command, env=self.environment, check=True, capture_output=True, timeout=_SECONDS
        )


@pytest.fixture
def kdc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kdc]:
    _require_kerberos()
    centre = Kdc(tmp_path)
    try:
        monkeypatch.setenv("KRB5_CONFIG", str(centre.config))
        monkeypatch.setenv("KRB5CCNAME", f"FILE:{centre.tickets}")
        monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"-Djava.security.krb5.conf={centre.config}")
        yield centre
    finally:
        centre.close()


@pytest.fixture(params=[pytest.param("authentication", marks=pytest.mark.slow), "privacy"])
def metastore(kdc: Kdc, request: pytest.FixtureRequest) -> Iterator[Metastore]:
    site = kdc.directory / "site"
    site.mkdir()
    (site / "core-site.xml").write_text(
        "<configuration>"
        "<property><name>hadoop.security.authentication</name><value>kerberos</value></property>"
        f"<property><name>hadoop.rpc.protection</name><value>{request.param}</value></property>"
        "</configuration>"
    )
    settings = {
        "hive.metastore.sasl.enabled": "true",
        "hive.metastore.kerberos.principal": _SERVICE,
        "hive.metastore.kerberos.keytab.file": str(kdc.keytab),
    }
    with Metastore("2.3", settings=settings, extra_classpath=[site]) as running:
        yield running


@pytest.fixture
def connect(metastore: Metastore) -> Iterator[Callable[..., ClientPool]]:
    pools: list[ClientPool] = []

    def make(**properties: str) -> ClientPool:
        given = {"uri": metastore.uri, "auth.mechanism": "kerberos"}
        given["auth.kerberos.host"] = "localhost"
        pools.append(ClientPool(load(HiveConfig, "hive", {**given, **properties})))
        return pools[-1]

    yield make
    for pool in pools:
        pool.close()


def test_a_ticket_opens_the_metastore_and_no_ticket_does_not(
    kdc: Kdc, connect: Callable[..., ClientPool]
) -> None:
    pool = connect()
    with pytest.raises(UnauthenticatedError, match="GSSAPI failed in the client"):
        pool.call(lambda c: c.hms.get_all_databases(), name="get_all_databases", repeatable=True)
    kdc.log_in()
    for _ in range(3):
        found = pool.call(
            lambda c: c.hms.get_all_databases(), name="get_all_databases", repeatable=True
        )
        assert found == ["default"]

    stranger = connect(**{"auth.kerberos.service-name": "nobody"})
    with pytest.raises(UnauthenticatedError, match="not found in Kerberos database"):
        stranger.call(lambda c: c.hms.get_all_databases(), name="x", repeatable=True)
