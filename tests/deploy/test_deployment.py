"""What gateways are deployed by: the image, the systemd unit and the Helm chart.

systemd's own checks look at the unit; no systemd has run it. What needs Helm is slow, and skipped
without it: see `make helm`. No cluster has run the chart.
"""

from __future__ import annotations

import copy
import json
import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import kubernetes_validate
import pytest
import yaml
from cli.program import run
from server.authenticated import LIST, serve_settings
from server.certificates import Authority, loopback
from servers.processes import run_command

from lance_bridge_server.access.authentication import ApiKeyFile, Principal
from lance_bridge_server.access.policies import CedarAuthorizer
from lance_bridge_server.config import ServerSettings, SettingsSource

pytestmark = pytest.mark.quick

# -- the image and the systemd unit ----------------------------------------------------------------


REPOSITORY = Path(__file__).parents[2]
CONTAINERFILE = REPOSITORY / "docker" / "Containerfile"
HEALTH = REPOSITORY / "docker" / "gateway" / "health.py"
INSTRUCTION = re.compile(r"^([A-Z]+) +((?:.*\\\n)*.*)$", re.MULTILINE)
USER = 65532
BUILD = {**os.environ, "VERSION": "1.2.3"}
"""The environment of a build with the argument of the Containerfile."""
READ_ONLY = """
mount -t tmpfs tmpfs "$1"
mount --bind "$2" "$1"
mount -o remount,ro,bind / /
exec setpriv --reuid {user} --regid {user} --clear-groups --no-new-privs \\
    --bounding-set=-all --inh-caps=-all env -i HOME=/tmp PATH="$3" "$4" serve --config "$5"
"""
POLICY = 'permit(principal in Group::"{}", action, resource);'
TABLE = ("prod", "sales", "orders")


def instructions(stage: int | None = None) -> list[tuple[str, str]]:
    """Return the instructions of a stage, or of all, with their lines joined."""
    found = [(name, re.sub(r"\s*\\\n\s*", " ", rest)) for name, rest in _instructions()]
    starts = [number for number, (name, _) in enumerate(found) if name == "FROM"] + [len(found)]
    return found if stage is None else found[starts[stage] : starts[stage + 1]]


def _instructions() -> list[tuple[str, str]]:
    lines = CONTAINERFILE.read_text(encoding="utf-8").splitlines()
    return INSTRUCTION.findall("\n".join(line for line in lines if not line.startswith("#")))


def values(name: str) -> list[str]:
    return [rest for each, rest in instructions() if each == name]


def test_hadolint_finds_nothing() -> None:
    assert run_command(Path(sys.executable).with_name("hadolint"), CONTAINERFILE).stdout == ""


def test_the_user_is_a_number_and_nothing_runs_as_root_after_it() -> None:
    last = [name for name, _ in instructions(1)]
    assert values("USER") == [f"{USER}:{USER}"]
    assert "RUN" not in last[last.index("USER") :]
    assert f"--uid {USER} " in dict(instructions(1))["RUN"]


def test_nothing_of_this_machine_is_copied() -> None:
    copied = [each for each in values("COPY") if not each.startswith("--from")]
    allowed = (CONTAINERFILE.parent / "Containerfile.dockerignore").read_text(encoding="utf-8")
    sources = {path for each in copied for path in each.split()[:-1]}
    assert sources == set(re.findall(r"^!(.+)$", allowed, re.MULTILINE))
    assert [path for path in sources if not (REPOSITORY / path).exists()] == []
    assert not re.search(r"password|secret|token|lbk_", str([*values("ENV"), *values("ARG")]))


def health(url: str) -> int:
    """Run the health check. It must ignore the proxies: nothing listens at port 9."""
    command = [sys.executable, str(HEALTH)]
    proxies = dict.fromkeys(("http_proxy", "https_proxy"), "http://127.0.0.1:9")
    environment = {**os.environ, **proxies, "no_proxy": "", "LANCE_BRIDGE_HEALTH_URL": url}
    return subprocess.run(command, env=environment, check=False, timeout=60).returncode


@pytest.mark.servers
def test_the_health_check_asks_the_server(tmp_path: Path) -> None:
    with serve_settings(tmp_path) as served:
        assert health(f"{served.url}/livez") == 0
    assert health(f"{served.url}/livez") == 1
    authority = Authority(tmp_path)
    certificate, key = authority.issue("gateway", names=loopback())
    tls = {"certificate": certificate, "key": key}
    with serve_settings(tmp_path, tls=tls) as served:
        assert health(f"{served.url}/livez") == 0
        assert health(f"{served.url.replace('https', 'http')}/livez") == 1


def _others_may_run(program: Path) -> bool:
    found = program.resolve()
    return found.exists() and all(each.stat().st_mode & 0o001 for each in (found, *found.parents))


PYTHON = next(
    (
        path
        for path in (Path(sys.base_exec_prefix, "bin", "python3"), Path("/usr/bin/python3"))
        if _others_may_run(path)
    ),
    None,
)
"""A Python that other users may run as well."""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """What the first stage puts into /opt, in a directory that every user may read."""
    base = Path("/var/tmp") / f"lance-bridge-image-{os.getpid()}"
    source, target = tmp_path_factory.mktemp("source"), base / "opt"
    target.mkdir(parents=True)
    base.chmod(0o755)
    try:
        for name, text in instructions(0):
            if name == "COPY":
                *paths, to = text.split()
                for path in paths:
                    _copy(REPOSITORY / path, to, source, target, is_one=len(paths) == 1)
            elif name == "RUN":
                command = re.sub(r"(?<!/)\bpython -m", f"{PYTHON} -m", text)
                command = command.replace("/opt/", f"{target}/")
                subprocess.run(["sh", "-eu", "-c", command], cwd=source, env=BUILD, check=True)
        yield target / "lance-bridge"
    finally:
        shutil.rmtree(base)


def _copy(path: Path, to: str, source: Path, target: Path, *, is_one: bool) -> None:
    place = Path(to.replace("/opt", str(target))) if to.startswith("/") else source / to
    if path.is_dir():
        shutil.copytree(path, place, ignore=shutil.ignore_patterns("__pycache__"))
        return
    into = place / path.name if to.endswith("/") or not is_one else place
    into.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(path, into)


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a read-only root filesystem")
@pytest.mark.skipif(PYTHON is None, reason="there is no Python that other users may run")
def test_what_it_installs_serves_on_a_read_only_root(installed: Path) -> None:
    etc, temporary = installed.parent / "etc", installed.parent / "tmp"
    etc.mkdir()
    temporary.mkdir()
    temporary.chmod(0o777)
    keys = ApiKeyFile(etc / "keys.json")
    key, _ = keys.add("ann")
    keys.path.chmod(0o644)
    content = {
        "catalogs": {"files": {"impl": "dir", "root": "/tmp/lake"}},
        "listeners": [{"port": 0}],
        "authentication": [{"method": "api_keys", "file": str(keys.path)}],
        "workers": 2,
    }
    (etc / "server.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
    script = READ_ONLY.format(user=USER)
    path = f"{installed}/bin:{os.environ['PATH']}"
    program = [f"{installed}/bin/lance-bridge", str(etc / "server.yaml")]
    assert subprocess.check_output([program[0], "--version"], text=True) == "lance-bridge 1.2.3\n"
    command = ["unshare", "--mount", "sh", "-eu", "-c", script, "sh", "/tmp", str(temporary), path]
    with subprocess.Popen(
        [*command, *program], cwd="/", stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            assert httpx.get(f"{url}{LIST}", timeout=60).status_code == 401
            found = httpx.get(f"{url}{LIST}", headers={"x-api-key": key})
            assert found.json()["namespaces"] == ["files"]
            made = httpx.post(
                f"{url}/v1/namespace/files$films/create", json={}, headers={"x-api-key": key}
            )
            assert made.status_code == 200, made.text
            status = Path(f"/proc/{process.pid}/status").read_text()
            assert re.search(rf"^Uid:\s+{USER}\s+{USER}", status, re.MULTILINE)
            assert re.search(r"^CapEff:\s+0+$", status, re.MULTILINE)
            mounts = Path(f"/proc/{process.pid}/mounts").read_text()
            assert re.search(r"^\S+ / \S+ ro[,\s]", mounts, re.MULTILINE)
            process.terminate()
            assert process.wait(60) == 0
        finally:
            process.kill()
    assert list(temporary.rglob("*")), "the table's files are in the temporary directory"


# -- files as Kubernetes mounts them, and changes them: it replaces a link to their directory ------


def mount(directory: Path, version: int, name: str, content: str, mode: int = 0o644) -> Path:
    """Write a version of a mounted file; return its path, which stays the same."""
    data = directory / f"..{version}"
    data.mkdir()
    (data / name).write_text(content, encoding="utf-8")
    (data / name).chmod(mode)
    link = directory / f"..data_{version}"
    link.symlink_to(data.name)
    link.rename(directory / "..data")
    path = directory / name
    if not path.is_symlink():
        path.symlink_to(f"..data/{name}")
    return path


def test_changed_policies_apply(tmp_path: Path) -> None:
    mount(tmp_path, 1, "lake.cedar", POLICY.format("analysts"))
    authorizer = CedarAuthorizer(tmp_path, 0.0)
    ann = Principal("ann", frozenset({"analysts"}))
    assert authorizer.check(ann, "query_table", TABLE).allowed
    mount(tmp_path, 2, "lake.cedar", POLICY.format("curators"))
    assert not authorizer.check(ann, "query_table", TABLE).allowed


def test_changed_keys_apply(tmp_path: Path) -> None:
    made = ApiKeyFile(tmp_path / "made.json")
    first, entry = made.add("ann")
    keys = ApiKeyFile(mount(tmp_path, 1, "keys.json", made.path.read_text(), 0o440))
    assert keys.find(first) is not None
    second, _ = made.add("bob")
    made.revoke(entry.id)
    mount(tmp_path, 2, "keys.json", made.path.read_text(), 0o440)
    assert keys.find(first) is None
    assert keys.find(second) is not None


UNIT = REPOSITORY / "deploy" / "systemd" / "lance-bridge.service"
PAGE = (REPOSITORY / "docs" / "gateway.md").read_text(encoding="utf-8")
MOST_EXPOSURE = 2.0
"""Of 10, by the measure of ``systemd-analyze security``."""
needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed"
)


def settings() -> dict[str, list[str]]:
    """Return the settings of the service, each with its values."""
    found = defaultdict(list)
    for key, value in re.findall(r"^(\w+)=(.*)$", UNIT.read_text(encoding="utf-8"), re.MULTILINE):
        found[key].append(value)
    return found


@needs_systemd
def test_systemd_takes_every_setting(tmp_path: Path) -> None:
    text = UNIT.read_text(encoding="utf-8")
    unit = tmp_path / UNIT.name
    unit.write_text(text.replace("/opt/lance-bridge/bin/lance-bridge", shutil.which("true") or ""))
    assert run_command("systemd-analyze", "verify", unit).stderr == ""
    unit.write_text(text.replace("ProtectSystem=strict", "ProtectSystem=mostly"))
    done = run_command("systemd-analyze", "verify", unit, code=None)
    assert "Failed to parse protect system" in done.stderr


@needs_systemd
def test_the_service_is_hardly_exposed() -> None:
    options = ("--offline=true", "--no-pager")
    done = run_command("systemd-analyze", "security", *options, UNIT, code=None)
    [level] = re.findall(r"Overall exposure level for \S+: (\d+\.\d+)", done.stdout)
    assert float(level) < MOST_EXPOSURE


def test_it_waits_until_requests_are_completed() -> None:
    default = ServerSettings.model_fields["stop_seconds"].default
    assert int(settings()["TimeoutStopSec"][0]) >= default + 10


def test_it_runs_a_command_that_exists() -> None:
    [command] = settings()["ExecStart"]
    program, *arguments = command.split()
    assert Path(program).name == "lance-bridge"
    done = run(*arguments, code=2)
    assert "/etc/lance-bridge/server.yaml cannot be read" in done.output.replace("\n", " ")
    assert settings()["RestartPreventExitStatus"] == ["2"]


@pytest.mark.spec("server.md#stop-and-reload")
def test_a_reload_during_the_start_restarts_it() -> None:
    """The program cannot handle SIGHUP before Python runs; for systemd, it is a clean end."""
    assert settings()["RestartForceExitStatus"] == ["SIGHUP"]


def test_credentials_are_those_of_the_page() -> None:
    [text] = [
        each
        for each in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
        if "/run/credentials/" in each
    ]
    named = set(re.findall(r"/run/credentials/lance-bridge\.service/([\w.]+)", text))
    assert named == {each.partition(":")[0] for each in settings()["LoadCredential"]}
    content = ServerSettings.model_validate(yaml.safe_load(text))
    assert content.workers >= 2, "ExecReload would end a server of one process"


# -- the Helm chart --------------------------------------------------------------------------------


CHART = REPOSITORY / "deploy" / "helm" / "lance-bridge"
VALUES = sorted((CHART / "ci").glob("*-values.yaml"))
HELM = REPOSITORY / ".cache" / "helm" / "helm"
"""`make helm` builds it."""
SCHEMA = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
DEFAULTS = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
RELEASES = ["1.25", "1.30", "1.37"]
"""Of Kubernetes: the oldest that the chart takes, and later ones."""
SMALL, WHOLE = VALUES
every_file = pytest.mark.parametrize("values", VALUES, ids=lambda path: path.name)


def load(path: Path) -> Any:
    """Return the content of a YAML file."""
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def values_of_page() -> str:
    """Return the values that `docs/gateway.md` shows."""
    section = PAGE.partition("\n## On Kubernetes\n")[2]
    return section.partition("```yaml\n")[2].partition("```")[0]


def merged(base: Any, other: Any) -> Any:
    """Return values as Helm merges them: mappings by their keys, everything else as a whole."""
    if not isinstance(base, Mapping) or not isinstance(other, Mapping):
        return other
    return {**base, **{key: merged(base.get(key), value) for key, value in other.items()}}


def helm(*arguments: str | Path, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run Helm, with a home of its own that is never written; skip the test where Helm is not."""
    if not HELM.exists():
        pytest.skip("no Helm: make helm")
    return run_command(HELM, *arguments, code=code, cwd=CHART.parent)


def render(values: Path, *options: str) -> list[dict[str, Any]]:
    """Return the objects of a release."""
    done = helm("template", "gw", CHART.name, "--namespace", "data", "-f", values, *options)
    return [each for each in yaml.safe_load_all(done.stdout) if each]


def problems(values: Any) -> list[str]:
    validator = jsonschema.validators.validator_for(SCHEMA)(SCHEMA)
    return [error.message for error in validator.iter_errors(values)]


def test_every_value_is_in_the_schema() -> None:
    assert {*DEFAULTS} == {*SCHEMA["properties"]} - {"global"}
    for name, known in SCHEMA["properties"].items():
        if known.get("additionalProperties") is False:
            assert {*DEFAULTS[name]} == {*known["properties"]}, name


@pytest.mark.parametrize("name", ["small-values.yaml", "whole-values.yaml", "of the page"])
def test_the_schema_takes_values_and_the_server_their_configuration(
    name: str, tmp_path: Path
) -> None:
    texts = {path.name: path.read_text(encoding="utf-8") for path in VALUES}
    text = {**texts, "of the page": values_of_page()}[name]
    values = merged(DEFAULTS, yaml.safe_load(text))
    assert problems(values) == []
    path = tmp_path / "server.yaml"
    path.write_text(yaml.safe_dump(values["config"]), encoding="utf-8")
    settings = SettingsSource(path).read()
    assert settings.listeners[0].host == "0.0.0.0"
    assert settings.authentication
    for file, policies in values["policies"].items():
        (tmp_path / file).write_text(policies, encoding="utf-8")
        CedarAuthorizer(tmp_path / file)


@pytest.mark.parametrize(
    ("keys", "value", "problem"),
    [
        (["config", "catalogs"], {}, "non-empty"),
        (["config", "listeners"], [{"socket": "/s"}], "'host' is a required"),
        (["policies"], {"a.txt": ""}, "does not match"),
        (["secretEnvironment"], {"A": {"name": "s", "key": "k", "value": "v"}}, "unexpected"),
        (["apiKeySecret"], {"name": "s"}, "unexpected"),
        (["replicas"], "2", "not of type"),
    ],
)
def test_the_schema_refuses_mistakes(keys: list[str], value: Any, problem: str) -> None:
    values = copy.deepcopy(merged(DEFAULTS, load(VALUES[0])))
    inner = values
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = value
    assert any(problem in each for each in problems(values)), problems(values)


def test_paths_of_secrets_in_the_configuration_are_those_that_are_mounted() -> None:
    text = (CHART / "ci" / "whole-values.yaml").read_text(encoding="utf-8")
    template = (CHART / "templates" / "deployment.yaml").read_text(encoding="utf-8")
    mounted = set(re.findall(r"mountPath: (/etc/\S+)", template))
    named = {str(Path(each).parent) for each in re.findall(r"/etc/[\w./-]+\.\w+", text)}
    assert named == mounted - {"/etc/lance-bridge/config", "/etc/lance-bridge/policies"}


# -- rendered by Helm, and validated by the schemas of Kubernetes ----------------------------------


def of_kind(objects: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    """Return the object of a kind."""
    found = [each for each in objects if each["kind"] == kind]
    assert found, kind
    return found[0]


def pod_of(objects: list[dict[str, Any]]) -> dict[str, Any]:
    pod: dict[str, Any] = of_kind(objects, "Deployment")["spec"]["template"]["spec"]
    return pod


@pytest.mark.slow
@pytest.mark.parametrize("values", [*VALUES, None], ids=lambda path: path.name if path else "page")
def test_helm_lints_it_and_its_objects_are_those_of_kubernetes(
    values: Path | None, tmp_path: Path
) -> None:
    if values is None:
        values = tmp_path / "values.yaml"
        values.write_text(values_of_page(), encoding="utf-8")
    helm("lint", "--strict", CHART.name, "-f", values)
    for release in RELEASES:
        for each in render(values, "--kube-version", release):
            kubernetes_validate.validate(each, release, strict=True)


@pytest.mark.slow
def test_the_validator_refuses_what_kubernetes_does_not_know() -> None:
    deployment = of_kind(render(SMALL), "Deployment")
    deployment["spec"]["template"]["spec"]["containers"][0]["portz"] = []
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(deployment, RELEASES[-1], strict=True)


@pytest.mark.slow
def test_kinds_are_optional() -> None:
    small = {"ConfigMap", "Deployment", "PodDisruptionBudget", "Service", "ServiceAccount"}
    assert {each["kind"] for each in render(SMALL)} == small
    more = {"HorizontalPodAutoscaler", "Ingress", "NetworkPolicy"}
    assert {each["kind"] for each in render(WHOLE)} == small | more


@pytest.mark.slow
@every_file
def test_pods_are_not_root_and_write_in_tmp_alone(values: Path) -> None:
    pod = pod_of(render(values))
    [container] = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] == 65532
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert pod["automountServiceAccountToken"] is False
    writable = [each["mountPath"] for each in container["volumeMounts"] if "readOnly" not in each]
    assert writable[0] == "/tmp"
    assert [each for each in writable if each.startswith("/etc")] == []


@pytest.mark.slow
@every_file
def test_pods_end_after_their_requests(values: Path, tmp_path: Path) -> None:
    objects = render(values)
    settings = configuration(objects, tmp_path)
    assert pod_of(objects)["terminationGracePeriodSeconds"] >= settings.stop_seconds + 10


@pytest.mark.slow
@every_file
def test_the_server_reads_the_configuration_that_is_mounted(values: Path, tmp_path: Path) -> None:
    objects = render(values)
    settings = configuration(objects, tmp_path)
    assert sorted(settings.catalogs) == sorted(load(values)["config"]["catalogs"])
    [container] = pod_of(objects)["containers"]
    port = settings.listeners[0].port
    assert container["ports"] == [{"name": "http", "containerPort": port}]
    scheme = "HTTPS" if settings.tls else "HTTP"
    for probe, path in (("startup", "/livez"), ("liveness", "/livez"), ("readiness", "/readyz")):
        expected = {"path": path, "port": "http", "scheme": scheme}
        assert container[f"{probe}Probe"]["httpGet"] == expected


def configuration(objects: list[dict[str, Any]], directory: Path) -> ServerSettings:
    path = directory / "server.yaml"
    path.write_text(of_kind(objects, "ConfigMap")["data"]["server.yaml"], encoding="utf-8")
    return SettingsSource(path).read()


@pytest.mark.slow
def test_secrets_are_referred_to() -> None:
    pod = pod_of(render(WHOLE))
    [container] = pod["containers"]
    token = {"name": "unity", "key": "token"}
    assert {
        "name": "LANCE_BRIDGE_UNITY_TOKEN",
        "valueFrom": {"secretKeyRef": token},
    } in container["env"]
    secrets = [each["secret"]["secretName"] for each in pod["volumes"] if "secret" in each]
    assert secrets == ["lance-bridge-keys", "lance-bridge-tls", "lance-bridge-client-ca"]
    assert of_kind(render(WHOLE), "ServiceAccount")["metadata"]["annotations"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "key",
    [
        "token",
        "password",
        "auth.password",
        "secret_access_key",
        "storage.aws_session_token",
        "storage.azure_sas_key",
    ],
)
def test_a_secret_among_the_values_is_refused(key: str, tmp_path: Path) -> None:
    values = load(SMALL)
    values["config"]["catalogs"]["lake"][key] = "hunter2"
    path = tmp_path / "values.yaml"
    path.write_text(yaml.safe_dump(values), encoding="utf-8")
    done = helm("template", "gw", CHART.name, "-f", path, code=1)
    assert f"config.catalogs.lake.{key} is a secret: give it by secretEnvironment" in done.stderr
    assert "hunter2" not in done.stdout + done.stderr


@pytest.mark.slow
def test_a_changed_configuration_replaces_the_pods() -> None:
    def checksum(*options: str) -> str:
        template = of_kind(render(SMALL, *options), "Deployment")["spec"]["template"]
        found: str = template["metadata"]["annotations"]["checksum/config"]
        return found

    assert checksum() == checksum("--set", "replicas=5")
    assert checksum() != checksum("--set", "config.workers=2")
