"""Checks the archives of a directory: ``python -m release.distributions dist [--strict]``.

It checks what twine and check-wheel-contents do not look for. With ``--strict``, what only hinders
publishing fails, too.
"""

from __future__ import annotations

import re
import sys
import tarfile
from dataclasses import dataclass
from email.message import Message
from email.parser import Parser
from pathlib import Path
from zipfile import ZipFile

import yaml
from packaging.version import Version

ROOT = Path(__file__).parents[1]
JAR = "lance_bridge_spark/jvm/lance-bridge-spark.jar"
LICENCES = ("LICENSE", "THIRD_PARTY_LICENSES.md")
IN_ARCHIVE = (*LICENCES, "README.md", "pyproject.toml", "hatch_build.py", "hatch_readme.py")
_RELATIVE_LINK = re.compile(r"\]\((?!https?:|mailto:)[^)\s]+\)")


@dataclass(frozen=True)
class Distributions:
    """A wheel and a source archive of one version."""

    wheel: Path
    archive: Path
    metadata: Message
    """The METADATA file of the wheel."""

    @property
    def version(self) -> Version:
        return Version(self.metadata["Version"])


def read(directory: Path) -> Distributions:
    """Read the wheel and the archive of a directory.

    Raises:
        ValueError: There is not exactly one of each.
    """
    wheels, archives = sorted(directory.glob("*.whl")), sorted(directory.glob("*.tar.gz"))
    if len(wheels) != 1 or len(archives) != 1:
        names = [path.name for path in (*wheels, *archives)]
        raise ValueError(f"{directory} needs one wheel and one source archive, and has {names}")
    with ZipFile(wheels[0]) as wheel:
        [name] = [each for each in wheel.namelist() if each.endswith(".dist-info/METADATA")]
        metadata = Parser().parsestr(wheel.read(name).decode())
    return Distributions(wheels[0], archives[0], metadata)


def mistakes(built: Distributions) -> list[str]:
    """Return what is wrong with the archives, whether they are published or not."""
    with ZipFile(built.wheel) as wheel:
        files = wheel.namelist()
    with tarfile.open(built.archive) as archive:
        sources = {name.partition("/")[2] for name in archive.getnames()}
    found = [] if JAR in files else [f"the wheel has no {JAR}; it is built where a Java is found"]
    for name in LICENCES:
        if not any(each.endswith(f".dist-info/licenses/{name}") for each in files):
            found.append(f"the wheel has no {name}")
    found += [f"the source archive has no {name}" for name in IN_ARCHIVE if name not in sources]
    if f"-{built.version}.tar.gz" not in built.archive.name:
        found.append(f"the source archive {built.archive.name} has another version")
    links = _RELATIVE_LINK.findall(str(built.metadata.get_payload()))
    return found + [
        f"the README has a link that an index page cannot follow: {each}" for each in links
    ]


def hindrances(built: Distributions) -> list[str]:
    """Return what has to be set or done before the archives are published."""
    version, found = built.version, []
    if version.is_devrelease or version.local:
        found.append(f"{version} is not the version of a release: build from a tag, such as v0.1.0")
    if not any(each.startswith("Source, ") for each in built.metadata.get_all("Project-URL", [])):
        found.append("set Source in [project.urls] of pyproject.toml to the repository's address")
    if f"\n## {version}" not in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"):
        found.append(f"CHANGELOG.md has no section {version}: rename Unreleased")
    chart = yaml.safe_load((ROOT / "deploy/helm/lance-bridge/Chart.yaml").read_text("utf-8"))
    if chart["appVersion"] != str(version):
        found.append(f"appVersion of the Helm chart is {chart['appVersion']}, and not {version}")
    return found


if __name__ == "__main__":
    directory, *options = sys.argv[1:]
    built = read(Path(directory))
    wrong, unready = mistakes(built), hindrances(built)
    print(f"{built.wheel.name}: version {built.version}")
    for each in wrong:
        print(f"wrong: {each}")
    for each in unready:
        print(f"before publishing: {each}")
    sys.exit(1 if wrong or (unready and "--strict" in options) else 0)
