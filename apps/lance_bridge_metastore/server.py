"""One embedded Hive Metastore: a server in its own JVM, its hive-site.xml, and its directory."""

from __future__ import annotations

import atexit
import fcntl
import os
import random
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any
from xml.sax.saxutils import escape

from lance_bridge.jvm import find_java

from .releases import (
    ArtifactsUnavailableError,
    EmbeddedError,
    MetastoreStartError,
    Release,
    jars_of,
    loopback_classes,
    release,
)

_MAIN_CLASS = "org.apache.hadoop.hive.metastore.HiveMetaStore"
_JAVA_FLAGS = (
    # Enough for a catalog of thousands of tables, and quick to start on a small machine.
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "--add-opens=java.base/java.net=ALL-UNNAMED",
    "--add-opens=java.base/java.util=ALL-UNNAMED",
)
_NOT_DURABLE = ("-Dderby.system.durability=test",)
"""State survives a killed JVM but not a crash of the machine; saves seconds on busy disks."""
_LOGGING = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{ISO8601} %p %c{1}: %m%n
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
"""
_PORTS = range(15000, 32768)
_PORT_TAKEN = "Address already in use"
_DATABASE_TAKEN = "Another instance of Derby may have already booted the database"
_ATTEMPTS = 5
_POLL_SECONDS = 0.05
_TAIL_LINES = 40
_STOP_SECONDS = 10.0
_GUARD = Path(__file__).with_name("guard.py")
_PID_POLL_SECONDS = 0.02
_LAUNCH_SECONDS = 30.0


class Metastore:
    """A Hive Metastore for demos, tests, and users who have none yet.

    ::

        with Metastore("2.3") as metastore:
            lance_bridge.connect("hive", {"uri": metastore.uri})

    Args:
        version: one of :data:`~.releases.RELEASES`; 2.3 needs only PySpark, the others are
            fetched once.
        directory: where state, configuration and log are kept; only one metastore at a time. By
            default a temporary directory, removed by :meth:`close`.
        port: 0 chooses a free one, and keeps it for restarts.
        warehouse: where databases are created by default (path or URI); ``directory/warehouse``.
        extra_classpath: jars, or directories of classes, put before the server's own.
        settings: properties of hive-site.xml, which override the defaults.
        java: the Java to run it with (path, or name on ``PATH``); by default one that is new enough
            is found, see :func:`lance_bridge.jvm.find_java`.
        heap_megabytes: the JVM's maximum heap.
        start_timeout: seconds that :meth:`start` waits for a response.

    It listens on 127.0.0.1 only, except 2.3 and 3.1 with TLS, which listen on every address. It
    ends with the Python process that started it, however that ends.
    """

    def __init__(
        self,
        version: str = "2.3",
        directory: Path | None = None,
        port: int = 0,
        *,
        warehouse: str | Path | None = None,
        extra_classpath: Sequence[str | Path] = (),
        settings: Mapping[str, str] | None = None,
        java: str | None = None,
        heap_megabytes: int = 512,
        start_timeout: float = 120.0,
    ) -> None:
        self.release = release(version)
        self._directory = Path(directory).absolute() if directory is not None else None
        self._is_temporary = directory is None
        self.port = port
        """The port it listens on; 0 before the first start, if none was given."""
        self._warehouse = warehouse
        self._extra_classpath = [str(entry) for entry in extra_classpath]
        self._settings = dict(settings or {})
        self._java = java
        self._heap_megabytes = heap_megabytes
        self._start_timeout = start_timeout
        self._process: GuardedProcess | None = None
        self._directory_lock: IO[bytes] | None = None
        self._owner = os.getpid()
        self._log_offset = 0
        self._lock = threading.RLock()

    # -- properties ------------------------------------------------------------------------------

    @property
    def uri(self) -> str:
        """``thrift://127.0.0.1:PORT``."""
        return f"thrift://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int | None:
        """The JVM's process id, or None if it does not run."""
        return self._process.pid if self._process is not None and self.is_running else None

    @property
    def is_running(self) -> bool:
        """Whether the JVM is alive."""
        return self._process is not None and self._process.exit_code is None

    @property
    def directory(self) -> Path:
        """The directory of state, configuration and log. Created on first use if temporary."""
        if self._directory is None:
            self._directory = Path(tempfile.mkdtemp(prefix="lance-bridge-metastore-"))
        return self._directory

    @property
    def warehouse(self) -> str:
        """Where databases are created by default, as a URI."""
        given = self._warehouse is not None
        text = str(self._warehouse if given else self.directory / "warehouse")
        return text if ":/" in text else f"file://{Path(text).absolute()}"

    @property
    def log_path(self) -> Path:
        """The file with the server's output, over all its starts."""
        return self.directory / "metastore.log"

    def log_tail(self) -> str:
        """Return the last lines that the server printed since its last start."""
        if not self.log_path.exists():
            return ""
        with self.log_path.open("rb") as log:
            log.seek(self._log_offset)
            text = log.read().decode("utf-8", errors="replace")
        return "\n".join(text.splitlines()[-_TAIL_LINES:])

    # -- start and stop ----------------------------------------------------------------------------

    def start(self) -> Metastore:
        """Start it, and return after it has responded to a call.

        State from an earlier start in the same directory is kept. Raises MetastoreStartError
        (DirectoryError if its directory cannot be used), JavaNotFoundError,
        ArtifactsUnavailableError, or EmbeddedError if the guard process fails.
        """
        with self._lock:
            if self.is_running:
                raise MetastoreStartError(f"This metastore is already running at {self.uri}")
            try:
                self._start()
            except BaseException:
                self._unlock_directory()
                raise
            return self

    def _start(self) -> None:
        if not self._is_temporary and self._directory_lock is None:
            self._directory_lock = _lock_directory(self.directory)
        java = find_java(self.release.minimum_java, self._java)
        _require_client()  # before jars are fetched, which takes minutes
        jars = jars_of(self.release, java=java.path)
        atexit.register(self.close)
        for attempt in range(1, _ATTEMPTS + 1):
            port = self.port or _free_port()
            try:
                self._launch(java.path, jars, port)
            except _PortTakenError:
                if self.port or attempt == _ATTEMPTS:
                    raise
            else:
                self.port = port
                break

    def stop(self) -> None:
        """End it gracefully, or by force after a few seconds. Its state is kept."""
        self._end(lambda process: process.stop(_STOP_SECONDS))

    def kill(self) -> None:
        """End it at once, as a crash would. Its state is kept."""
        self._end(GuardedProcess.kill)

    def _end(self, end: Callable[[GuardedProcess], None]) -> None:
        """End the process, except in one forked from the one that started it."""
        with self._lock:
            if os.getpid() == self._owner:
                if self._process is not None and self.is_running:
                    end(self._process)
                self._unlock_directory()

    def _unlock_directory(self) -> None:
        if self._directory_lock is not None:
            # Closing alone would leave the lock with processes that were forked since.
            fcntl.flock(self._directory_lock, fcntl.LOCK_UN)
            self._directory_lock.close()
            self._directory_lock = None

    def restart(self) -> None:
        """Stop it and start it again with the same port and state."""
        with self._lock:
            self.stop()
            self.start()

    def close(self) -> None:
        """Stop it; remove its directory if that is temporary."""
        if os.getpid() != self._owner:
            return
        with self._lock:
            self.stop()
            if self._is_temporary and self._directory is not None:
                shutil.rmtree(self._directory, ignore_errors=True)
                self._directory = None
            atexit.unregister(self.close)

    def __enter__(self) -> Metastore:
        try:
            return self if self.is_running else self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = f"at {self.uri}" if self.is_running else "not running"
        return f"<Metastore {self.release.full_version} {state}>"

    # -- starting the process --------------------------------------------------------------------

    def _launch(self, java: str, jars: Path, port: int) -> None:
        if not _is_free(port):
            raise _PortTakenError(f"Port {port} is in use by another program")
        instance = uuid.uuid4().hex
        # Before `directory_errors`, which would blame the directory for errors of the cache.
        command = self._command(java, jars, port)
        with _directory_errors(self.directory):
            site = self._configure(instance)
            self._log_offset = self.log_path.stat().st_size if self.log_path.exists() else 0
            self._process = GuardedProcess(
                command,
                directory=self.directory,
                log=self.log_path,
                directory_is_temporary=self._is_temporary,
            )
        try:
            self._wait_until_ready(self._process, port, instance, site)
        except BaseException:
            self._process.kill()
            raise

    def _configure(self, instance: str) -> dict[str, str]:
        """Write the configuration directory; return the settings of hive-site.xml."""
        site = hive_site(self.release, self.directory, self.warehouse, instance, self._settings)
        configuration = self.directory / "conf"
        configuration.mkdir(parents=True, exist_ok=True)
        (self.directory / "warehouse").mkdir(exist_ok=True)
        hive_site_file = configuration / "hive-site.xml"
        # Settings may hold the passwords of key stores.
        hive_site_file.touch(mode=0o600)
        hive_site_file.write_text(to_xml(site), encoding="utf-8")
        (configuration / "log4j2.properties").write_text(_LOGGING, encoding="utf-8")
        return site

    def _command(self, java: str, jars: Path, port: int) -> list[str]:
        loopback = [] if self.release.is_hive_4 else [str(loopback_classes(java, jars))]
        own = [str(self.directory / "conf"), *loopback, *self._extra_classpath]
        class_path = [*own, f"{jars}/*"]
        return [
            java,
            f"-Xmx{self._heap_megabytes}m",
            *_JAVA_FLAGS,
            *(_NOT_DURABLE if self._is_temporary else ()),
            f"-Dderby.stream.error.file={self.directory / 'derby.log'}",
            *("-cp", os.pathsep.join(class_path)),
            *(_MAIN_CLASS, "-p", str(port)),
        ]

    def _wait_until_ready(
        self, process: GuardedProcess, port: int, instance: str, site: Mapping[str, str]
    ) -> None:
        deadline = time.monotonic() + self._start_timeout
        while not is_responding(port, instance, site):
            if process.exit_code is not None:
                raise self._start_error(process.exit_code)
            if time.monotonic() > deadline:
                raise MetastoreStartError(
                    f"Hive Metastore {self.release.full_version} did not respond within "
                    f"{self._start_timeout:g} seconds. Its log ends:\n{self.log_tail()}"
                )
            time.sleep(_POLL_SECONDS)

    def _start_error(self, exit_code: int) -> MetastoreStartError:
        tail = self.log_tail()
        if _DATABASE_TAKEN in tail:
            return _directory_in_use(self.directory)
        error_type = _PortTakenError if _PORT_TAKEN in tail else MetastoreStartError
        return error_type(
            f"Hive Metastore {self.release.full_version} ended while starting "
            f"(exit code {exit_code}). Its log ends:\n{tail}"
        )


class _PortTakenError(MetastoreStartError):
    """Another program uses the port."""


def _require_client() -> None:
    """Check that the Thrift client is installed, which is needed to wait for the server."""
    from lance_bridge import extras  # noqa: PLC0415 - takes seconds to import

    try:
        extras.require("hive-embedded", "hmsclient", "thrift")
    except extras.MissingExtraError as error:
        raise ArtifactsUnavailableError(str(error)) from error


def _is_free(port: int) -> bool:
    with socket.socket() as candidate:
        # Like Java: closed connections of an earlier server do not count.
        candidate.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            candidate.bind(("", port))
        except OSError:
            return False
    return True


def _free_port() -> int:
    """Return a free port below the system's range for outgoing connections.

    With a port in that range, a client that reconnects while the server is down could be assigned
    the server's own port, connect to itself, and keep the server from restarting.
    """
    for port in random.sample(_PORTS, len(_PORTS)):
        if _is_free(port):
            return port
    raise MetastoreStartError(f"No port is free between {_PORTS[0]} and {_PORTS[-1]}")


# -- the process -----------------------------------------------------------------------------------


class GuardedProcess:
    """One running program, with its output in a file. It never outlives this process: see guard.py.

    Ctrl-C in the terminal does not reach it: its parent decides when it ends. A temporary
    ``directory`` is removed if the parent dies without removing it.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        directory: Path,
        log: Path,
        directory_is_temporary: bool,
    ) -> None:
        pid_file = directory / "pid"
        pid_file.unlink(missing_ok=True)
        remove = "remove" if directory_is_temporary else "keep"
        guard = [sys.executable, "-I", "-S", str(_GUARD), str(os.getpid()), str(pid_file), remove]
        with log.open("ab") as output:
            self._guard = subprocess.Popen(
                [*guard, *command],
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self.pid = self._wait_for_pid(pid_file)

    def _wait_for_pid(self, pid_file: Path) -> int:
        deadline = time.monotonic() + _LAUNCH_SECONDS
        while not pid_file.exists():
            if self._guard.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise EmbeddedError(
                    "The process that guards the metastore did not start it "
                    f"(exit code {self._guard.returncode})"
                )
            time.sleep(_PID_POLL_SECONDS)
        return int(pid_file.read_text(encoding="ascii"))

    @property
    def exit_code(self) -> int | None:
        """None while it runs; 128 plus the number of the signal if a signal ended it."""
        return self._guard.poll()

    def stop(self, timeout: float) -> None:
        """End it gracefully; kill it if it has not ended after ``timeout`` seconds."""
        self._guard.send_signal(signal.SIGTERM)
        try:
            self._guard.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """End it at once, as a crash would, and wait until it has ended."""
        self._guard.send_signal(signal.SIGUSR1)
        self._guard.wait()


# -- the directory ---------------------------------------------------------------------------------


class DirectoryError(MetastoreStartError):
    """The directory cannot be used for the state of this metastore."""


def _lock_directory(directory: Path) -> IO[bytes]:
    """Create a directory, and lock it for one metastore, from its start to its end."""
    with _directory_errors(directory):
        directory.mkdir(parents=True, exist_ok=True)
        lock = (directory / "lock").open("ab")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            raise _directory_in_use(directory) from None
    return lock


def _directory_in_use(directory: Path) -> DirectoryError:
    return DirectoryError(
        f"Directory {directory} is in use by another metastore: stop it, or choose another "
        "directory"
    )


@contextmanager
def _directory_errors(directory: Path) -> Iterator[None]:
    """Turn errors of the file system into DirectoryError."""
    try:
        yield
    except (FileExistsError, NotADirectoryError) as error:
        raise DirectoryError(
            f"Directory {directory} cannot be used: {error.filename} is not a directory"
        ) from error
    except OSError as error:
        reason = error.strerror or str(error)
        raise DirectoryError(f"Directory {directory} cannot be used: {reason}") from error


# -- hive-site.xml ---------------------------------------------------------------------------------


TLS_SWITCH = "metastore.use.SSL"
INSTANCE_KEY = "hive.metastore.lance.bridge.instance"
"""The setting that identifies our server by a value that is new for each start."""
_HIVE = "org.apache.hadoop.hive.metastore"
_STANDALONE = {
    # The defaults of these two are classes that only the rest of Hive contains.
    "metastore.expression.proxy": f"{_HIVE}.DefaultPartitionExpressionProxy",
    "metastore.task.threads.always": f"{_HIVE}.events.EventCleanerTask",
}
"""What a metastore without the rest of Hive needs, from 3.1 on."""


def hive_site(
    release: Release,
    directory: Path,
    warehouse: str,
    instance: str,
    settings: Mapping[str, str],
) -> dict[str, str]:
    """Return the settings of a metastore that keeps its state in ``directory``.

    ``settings`` override the others. ``instance`` is the value of :data:`INSTANCE_KEY`.
    """
    site = {
        "javax.jdo.option.ConnectionURL": f"jdbc:derby:{directory / 'metastore_db'};create=true",
        "javax.jdo.option.ConnectionDriverName": "org.apache.derby.jdbc.EmbeddedDriver",
        "hive.metastore.warehouse.dir": warehouse,
        "hive.metastore.schema.verification": "false",
        # Hive's own script for Derby makes parameter values a CLOB, which filters cannot compare.
        "datanucleus.schema.autoCreateAll": "true",
        # The default of 10 attempts, 2 s apart, makes each error of the database a 20 s stall.
        "hive.hmshandler.retry.attempts": "1",
        "hive.hmshandler.retry.interval": "100ms",
        "hive.async.log.enabled": "false",
        INSTANCE_KEY: instance,
    }
    if release.from_pyspark:
        # The default, BoneCP, is not among PySpark's jars: drop_database would end the connection.
        site["datanucleus.connectionPoolingType"] = "none"
    else:
        site |= _STANDALONE
    if release.version == "3.1":
        # Only this creates the tables for locks, which Hive's own schema tool would create.
        site["hive.in.tez.test"] = "true"
    if not release.is_hive_4:
        # Makes it use the class of `releases.loopback_classes`.
        site["hive.metastore.server.tcp.keepalive"] = "true"
    else:
        site["metastore.thrift.bind.host"] = "127.0.0.1"
        # Hive 4 refuses external tables inside the managed warehouse, and puts databases here.
        site["metastore.warehouse.external.dir"] = warehouse
        site["hive.metastore.warehouse.dir"] = f"file://{directory / 'managed'}"
    # Most settings have two names, with and without "hive.".
    given = {name.removeprefix("hive.") for name in settings}
    defaults = {k: value for k, value in site.items() if k.removeprefix("hive.") not in given}
    return defaults | dict(settings)


def to_xml(site: Mapping[str, str]) -> str:
    """Return settings as the text of a hive-site.xml."""
    properties = "\n".join(
        f"<property><name>{escape(name)}</name><value>{escape(value)}</value></property>"
        for name, value in site.items()
    )
    head = '<?xml version="1.0" encoding="UTF-8"?>'
    return f"{head}\n<configuration>\n{properties}\n</configuration>\n"


def is_enabled(site: Mapping[str, str], name: str) -> bool:
    """Return whether a switch is on, by its name with or without ``hive.``."""
    return "true" in _values(site, name)


def _values(site: Mapping[str, str], name: str) -> list[str]:
    return [site.get(each, "").strip().lower() for each in (name, f"hive.{name}")]


# -- probe -----------------------------------------------------------------------------------------


_TIMEOUT_SECONDS = 5.0
_HTTP_PATH = "metastore.server.thrift.http.path"


def is_responding(port: int, instance: str, site: Mapping[str, str]) -> bool:
    """Return whether the metastore named ``instance`` responds on ``port``.

    It uses the transport that ``site`` sets. The probe cannot authenticate: if callers must (SASL,
    HTTP with a token, client certificates), an open port is enough.
    """
    from thrift.Thrift import TException  # noqa: PLC0415 - an optional package

    try:
        with socket.create_connection(("127.0.0.1", port), _TIMEOUT_SECONDS) as connection:
            if _requires_login(site):
                return True
            return _read_instance(connection, port, site) == instance
    except (OSError, EOFError, TException):
        return False


def _requires_login(site: Mapping[str, str]) -> bool:
    authentication = next(filter(None, _values(site, "metastore.authentication")), "none")
    return authentication not in ("none", "nosasl") or is_enabled(site, "metastore.sasl.enabled")


def _read_instance(connection: socket.socket, port: int, site: Mapping[str, str]) -> str:
    from hmsclient.genthrift.hive_metastore import ThriftHiveMetastore  # noqa: PLC0415 - the same
    from thrift.protocol import TBinaryProtocol  # noqa: PLC0415 - the same

    transport = _create_transport(connection, port, site)
    try:
        protocol = TBinaryProtocol.TBinaryProtocol(transport)
        value = ThriftHiveMetastore.Client(protocol).get_config_value(INSTANCE_KEY, "")
        return str(value)
    finally:
        transport.close()


def _create_transport(connection: socket.socket, port: int, site: Mapping[str, str]) -> Any:
    from thrift.transport import THttpClient, TSocket, TTransport  # noqa: PLC0415 - the same

    secure = is_enabled(site, TLS_SWITCH)
    if "http" in _values(site, "metastore.server.thrift.transport.mode"):
        scheme = "https" if secure else "http"
        path = site.get(_HTTP_PATH) or site.get(f"hive.{_HTTP_PATH}") or "metastore"
        client = THttpClient.THttpClient(
            f"{scheme}://127.0.0.1:{port}/{path.lstrip('/')}", ssl_context=_unverified_tls()
        )
        client.setTimeout(int(_TIMEOUT_SECONDS * 1000))
        # Without a token, Hive requires this header, and trusts it.
        client.setCustomHeaders({"x-actor-username": "lance-bridge"})
        return client
    handle = TSocket.TSocket()
    # An open socket is handed over, because Thrift would log each refused connection as an error.
    handle.setHandle(_unverified_tls().wrap_socket(connection) if secure else connection)
    framed = is_enabled(site, "metastore.thrift.framed.transport.enabled")
    return TTransport.TFramedTransport(handle) if framed else TTransport.TBufferedTransport(handle)


def _unverified_tls() -> ssl.SSLContext:
    """Return a context without checks: the value that the probe reads identifies our server."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
