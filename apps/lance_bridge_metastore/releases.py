"""The releases of Hive Metastore that can be started, and their exact artifacts."""

from __future__ import annotations

from dataclasses import dataclass

_HIVE = "org.apache.hive"
_HADOOP = "org.apache.hadoop"
_HADOOP_REVISION = "3.5.0"
_NOT_NEEDED = ("jdk.tools", _HADOOP, "org.apache.hbase", "sqlline")


@dataclass(frozen=True)
class Artifact:
    """One artifact of the public Maven repository, at an exact revision.

    ``transitive`` includes its dependencies, except those of the organisations in ``excluded``;
    ``itself`` is False if only those dependencies are needed.
    """

    organisation: str
    name: str
    revision: str
    transitive: bool = True
    itself: bool = True
    excluded: tuple[str, ...] = ()


@dataclass(frozen=True)
class Release:
    """One release: ``version`` is what users type, ``full_version`` the exact release.

    A release without artifacts runs from the jars inside PySpark. ``minimum_java`` is a feature
    release number; 25 was tested with all, and 17 with all but 4.2; older ones can run neither
    PySpark's jars nor its Ivy.
    """

    version: str
    full_version: str
    minimum_java: int
    artifacts: tuple[Artifact, ...] = ()

    @property
    def is_hive_4(self) -> bool:
        """True from 4.0 on, where for example external tables have a separate warehouse."""
        return self.version >= "4.0"

    @property
    def from_pyspark(self) -> bool:
        """True if nothing has to be fetched, because PySpark's jars contain the server."""
        return not self.artifacts


_HADOOP_CLIENT = (
    Artifact(_HADOOP, "hadoop-client-api", _HADOOP_REVISION),
    Artifact(_HADOOP, "hadoop-client-runtime", _HADOOP_REVISION),
    Artifact("commons-cli", "commons-cli", "1.5.0"),
)
"""One Hadoop for all releases: with an earlier one, none runs on Java 24."""
_HDFS = Artifact(_HADOOP, "hadoop-hdfs", _HADOOP_REVISION, transitive=False)
"""Hive 4 refers to a few of its classes by name, on any file system."""


def _derby(revision: str, *names: str) -> tuple[Artifact, ...]:
    return tuple(Artifact("org.apache.derby", name, revision) for name in names)


def _log4j_api(revision: str) -> Artifact:
    """Return what log4j-core needs, but lists twice, once for tests: Ivy keeps the second."""
    return Artifact("org.apache.logging.log4j", "log4j-api", revision)


def _server_in_hive_exec(revision: str) -> tuple[Artifact, ...]:
    """Return the server from 4.1 on: hive-exec, which is shaded and does not list what it needs.

    Its dependencies are listed here. hive-standalone-metastore-common adds its dependencies, but
    not itself, because hive-exec contains its own copy of those classes.
    """
    return (
        Artifact(_HIVE, "hive-exec", revision, transitive=False),
        Artifact(
            _HIVE, "hive-standalone-metastore-common", revision, itself=False, excluded=_NOT_NEEDED
        ),
        Artifact("com.zaxxer", "HikariCP", "4.0.3"),
        Artifact("org.datanucleus", "datanucleus-api-jdo", "6.0.3"),
        Artifact("org.datanucleus", "datanucleus-core", "6.0.10"),
        Artifact("org.datanucleus", "datanucleus-rdbms", "6.0.10"),
        Artifact("org.datanucleus", "javax.jdo", "3.2.0-release"),
        Artifact("org.springframework", "spring-jdbc", "5.3.39"),
        Artifact("org.antlr", "antlr4-runtime", "4.9.3"),
        Artifact("commons-collections", "commons-collections", "3.2.2"),
        Artifact("org.apache.commons", "commons-dbcp2", "2.12.0"),
        Artifact("org.eclipse.jetty", "jetty-server", "9.4.57.v20241219"),
        Artifact("org.eclipse.jetty", "jetty-servlet", "9.4.57.v20241219"),
        Artifact("com.nimbusds", "nimbus-jose-jwt", "9.37.3"),
        Artifact("org.codehaus.jettison", "jettison", "1.5.4"),
        Artifact("org.pac4j", "pac4j-core", "4.5.8"),
        Artifact("com.cronutils", "cron-utils", "9.2.1"),
        Artifact("org.apache.logging.log4j", "log4j-slf4j-impl", "2.24.3"),
        # A dependency requires slf4j 2, which does not find this log4j and would log nothing.
        Artifact("org.slf4j", "slf4j-api", "1.7.36"),
        _log4j_api("2.24.3"),
        Artifact("org.apache.logging.log4j", "log4j-core", "2.24.3"),
        Artifact("org.apache.logging.log4j", "log4j-1.2-api", "2.24.3"),
    )


RELEASES: dict[str, Release] = {
    release.version: release
    for release in (
        Release("2.3", "2.3.10", 17),
        Release(
            "3.1",
            "3.1.3",
            17,
            (
                Artifact(_HIVE, "hive-standalone-metastore", "3.1.3", excluded=_NOT_NEEDED),
                *_HADOOP_CLIENT,
                _log4j_api("2.17.1"),
                Artifact("commons-collections", "commons-collections", "3.2.2"),
                Artifact("org.codehaus.jackson", "jackson-mapper-asl", "1.9.13"),
                *_derby("10.10.2.0", "derby", "derbytools"),
            ),
        ),
        Release(
            "4.0",
            "4.0.1",
            17,
            (
                Artifact(_HIVE, "hive-standalone-metastore-server", "4.0.1", excluded=_NOT_NEEDED),
                *_HADOOP_CLIENT,
                _HDFS,
                _log4j_api("2.18.0"),
                *_derby("10.14.2.0", "derby", "derbytools"),
            ),
        ),
        Release(
            "4.1",
            "4.1.0",
            17,
            (
                *_server_in_hive_exec("4.1.0"),
                *_HADOOP_CLIENT,
                _HDFS,
                *_derby("10.14.2.0", "derby", "derbytools"),
            ),
        ),
        Release(
            "4.2",
            "4.2.0",
            21,
            (
                *_server_in_hive_exec("4.2.0"),
                *_HADOOP_CLIENT,
                _HDFS,
                *_derby("10.17.1.0", "derby", "derbyshared", "derbytools"),
            ),
        ),
    )
}


def release(version: str) -> Release:
    """Return the release with this version (``"4.0"``) or full version (``"4.0.1"``).

    Raises ValueError if there is none.
    """
    for known in RELEASES.values():
        if version in (known.version, known.full_version):
            return known
    raise ValueError(
        f"No embedded Hive Metastore {version!r}: choose from {', '.join(sorted(RELEASES))}"
    )
