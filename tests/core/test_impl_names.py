"""Names of catalogs in processes that never imported lance_bridge: what the .pth file installs.

Each case is a process of its own that reads the directory of the .pth file as `site` reads
site-packages, which it leaves out itself (``-S``), as they may have the hook already. Most cases
import a stand-in for lance_namespace, which is soon imported and can be broken, zipped or wrapped.
Real wheels are installed in ``tests/install``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from textwrap import dedent

import pytest

pytestmark = [
    pytest.mark.quick,
    pytest.mark.spec("clients.md#names-and-class-paths", "common.md#connecting"),
]

CORE = Path(__file__).parents[2] / "core"
ADAPTERS = CORE.parent / "adapters"
PTH = CORE / "lance_bridge_names.pth"

STAND_IN = dedent(
    """
    NATIVE_IMPLS = {"dir": "lance.namespace.DirectoryNamespace"}
    _REGISTERED_IMPLS = {}
    def register_namespace_impl(name, class_path):
        _REGISTERED_IMPLS[name] = class_path
    def connect(impl, properties=None):
        return NATIVE_IMPLS.get(impl) or _REGISTERED_IMPLS.get(impl) or impl
    """
)
START = f"import site, sys; site.addsitedir({str(CORE)!r})\n"


@pytest.fixture
def stand_in(tmp_path: Path) -> Path:
    """A directory with a lance_namespace that is little more than its registry, and a catalog."""
    (tmp_path / "lance_namespace.py").write_text(STAND_IN)
    distribution = tmp_path / "fourth-1.0.dist-info"
    distribution.mkdir()
    (distribution / "METADATA").write_text("Metadata-Version: 2.1\nName: fourth\nVersion: 1.0\n")
    (distribution / "entry_points.txt").write_text(
        "[lance_bridge.catalogs]\nfourth = fourth:Fourth\nglue = lance_bridge_glue:GlueNamespace\n"
    )
    return tmp_path


def run(script: str, *path: Path, with_packages: bool = False) -> subprocess.CompletedProcess[str]:
    """Run a script in a process with these directories, or archives, in front of its path."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))}
    options = [] if with_packages else ["-S"]
    command = [sys.executable, *options, "-c", dedent(script)]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=60, check=False
    )


def printed(script: str, *path: Path, with_packages: bool = False) -> str:
    """What a script prints when the .pth file was read before it; it must print no error."""
    done = run(START + dedent(script), *path, with_packages=with_packages)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


# -- at the start of every process -----------------------------------------------------------------


def test_a_start_imports_one_module_that_imports_none(tmp_path: Path) -> None:
    (tmp_path / "empty.pth").write_text("import sys\n")

    def modules(directory: Path, name: str) -> set[str]:
        script = f"""
            import site, sys, json
            sys.path.append({str(CORE)!r})
            site.addpackage({str(directory)!r}, {name!r}, set())
            print(json.dumps(list(sys.modules)))
        """
        return set(json.loads(run(script).stdout))

    assert modules(CORE, PTH.name) - modules(tmp_path, "empty.pth") == {"_lance_bridge_names"}


@pytest.mark.parametrize("has_module", [False, True], ids=["uninstalled", "another release"])
def test_a_pth_file_without_its_module_says_nothing(tmp_path: Path, has_module: bool) -> None:
    (tmp_path / PTH.name).write_text(PTH.read_text())
    if has_module:
        (tmp_path / "_lance_bridge_names.py").write_text("")
    done = run(f"import site; site.addsitedir({str(tmp_path)!r}); print('started')")
    assert (done.stdout, done.stderr) == ("started\n", "")


FOURTH = "\nprint(lance_namespace.connect('fourth'))\n"

# -- names -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("roots", [pytest.param((CORE, ADAPTERS), marks=pytest.mark.servers)])
def test_names_are_found_without_an_import_of_lance_bridge(roots: tuple[Path, Path]) -> None:
    script = """
        from lance_namespace import connect
        assert not [name for name in sys.modules if name.startswith("lance_bridge")]
        print(type(connect("hive", {"uri": "thrift://127.0.0.1:9"})).__qualname__)
        print(type(connect("unity", {"host": "http://127.0.0.1:9"})).__qualname__)
        print(type(connect("glue", {"region": "eu-central-1"})).__qualname__)
    """
    found = printed(script, *roots, with_packages=True).split()
    assert found == ["HiveNamespace", "UnityNamespace", "GlueNamespace"]


IMPORTS = {
    "plain": "",
    "lazy": """
        import importlib.util
        spec = importlib.util.find_spec("lance_namespace")
        spec.loader = importlib.util.LazyLoader(spec.loader)
        module = sys.modules["lance_namespace"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    """,
    "two copies of the hook": f"""
        import importlib.util
        source = {str(CORE / "_lance_bridge_names.py")!r}
        spec = importlib.util.spec_from_file_location("another_copy", source)
        copy = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(copy)
        copy.install()
    """,
}


@pytest.mark.parametrize("way", IMPORTS)
def test_a_fourth_catalog_has_its_name(stand_in: Path, way: str) -> None:
    script = f"{dedent(IMPORTS[way])}\nimport lance_namespace{FOURTH}"
    assert printed(script, stand_in) == "fourth.Fourth"


def test_entry_points_are_read_for_an_unknown_name_only(stand_in: Path) -> None:
    script = """
        import lance_namespace
        print(lance_namespace.connect("dir"), lance_namespace.connect("some.Class"))
        assert "importlib.metadata" not in sys.modules
        lance_namespace.register_namespace_impl("fourth", "own.Fourth")
        assert "importlib.metadata" not in sys.modules
        print(lance_namespace.connect("nowhere"), "importlib.metadata" in sys.modules)
    """
    assert printed(script, stand_in).split() == [
        "lance.namespace.DirectoryNamespace", "some.Class", "nowhere", "True",
    ]  # fmt: skip


def test_a_name_that_is_no_text_fails_as_it_does_without_us(stand_in: Path) -> None:
    script = "from lance_namespace import connect; print(connect(7), connect(''))"
    assert printed(script, stand_in) == "7"


# -- a clash ---------------------------------------------------------------------------------------

CLASH = (
    "lance_namespace.connect('glue') gives other.GlueNamespace, which this process registered "
    "under that name. lance-bridge's lance_bridge_glue.GlueNamespace is given by "
    "lance_bridge.connect('glue'), or by its class path"
)


def test_a_name_that_the_process_registered_wins_and_the_clash_is_logged_once(
    stand_in: Path,
) -> None:
    script = """
        import lance_namespace
        print(lance_namespace.connect("glue"))
        lance_namespace.register_namespace_impl("glue", "other.GlueNamespace")
        print(lance_namespace.connect("glue"))
        print(lance_namespace.connect("glue"))
    """
    done = run(START + dedent(script), stand_in)
    assert done.stdout.split() == ["lance_bridge_glue.GlueNamespace", *2 * ["other.GlueNamespace"]]
    assert done.stderr.splitlines() == [CLASH]


@pytest.mark.parametrize(
    "imports",
    [
        pytest.param("lance_bridge, registering_others", marks=pytest.mark.servers),
        pytest.param("registering_others, lance_bridge", marks=pytest.mark.servers),
    ],
)
def test_an_import_of_lance_bridge_takes_no_name_in_any_order(tmp_path: Path, imports: str) -> None:
    (tmp_path / "registering_others.py").write_text(
        "from lance_namespace import LanceNamespace, register_namespace_impl\n"
        "class GlueNamespace(LanceNamespace):\n"
        "    def namespace_id(self): return 'foreign'\n"
        "register_namespace_impl('glue', 'registering_others.GlueNamespace')\n"
    )
    script = f"""
        import {imports}, lance_namespace
        print(lance_namespace.connect("glue", {{}}).namespace_id())
        print(lance_bridge.connect("glue", region="eu-central-1").namespace_id())
    """
    done = run(script, tmp_path, CORE, ADAPTERS, with_packages=True)
    assert done.stdout.split() == ["foreign", "glue(eu-central-1)"]
    assert "registering_others.GlueNamespace" in done.stderr
    assert "lance_bridge_glue.GlueNamespace" in done.stderr


def test_our_class_path_under_our_name_is_no_clash(stand_in: Path) -> None:
    script = """
        import lance_namespace
        lance_namespace.register_namespace_impl("glue", "lance_bridge_glue.GlueNamespace")
        lance_namespace.register_namespace_impl("polaris", "other.Polaris")
        print(lance_namespace.connect("glue"), lance_namespace.connect("polaris"))
    """
    assert printed(script, stand_in) == "lance_bridge_glue.GlueNamespace other.Polaris"


# -- the import system -----------------------------------------------------------------------------


def test_a_lance_namespace_that_was_imported_before_has_the_names(stand_in: Path) -> None:
    script = f"import lance_namespace\n{START}{FOURTH}"
    done = run(script, stand_in)
    assert (done.stdout, done.stderr) == ("fourth.Fourth\n", "")


def test_a_module_shows_its_own_loader_again(stand_in: Path) -> None:
    script = """
        import importlib.util, inspect
        from importlib.machinery import SourceFileLoader
        spec = importlib.util.find_spec("lance_namespace")
        print(spec.origin.endswith("lance_namespace.py"), spec.loader.is_package("lance_namespace"))
        import lance_namespace
        loaders = lance_namespace.__loader__, lance_namespace.__spec__.loader
        print([type(loader) is SourceFileLoader for loader in loaders])
        print("NATIVE_IMPLS" in inspect.getsource(lance_namespace))
        print(importlib.util.find_spec("lance_namespace") is lance_namespace.__spec__)
    """
    assert printed(script, stand_in).split() == ["True", "False", "[True,", "True]", "True", "True"]


def test_a_reload_and_a_second_import_keep_the_names(stand_in: Path) -> None:
    script = """
        import importlib, lance_namespace
        lance_namespace.register_namespace_impl("mine", "own.Mine")
        importlib.reload(lance_namespace)
        print(lance_namespace.connect("fourth"), lance_namespace.connect("mine"))
        del sys.modules["lance_namespace"]
        import lance_namespace
        print(lance_namespace.connect("fourth"))
        import _lance_bridge_names
        importlib.reload(_lance_bridge_names).install()
        importlib.reload(lance_namespace)
        print(lance_namespace.connect("fourth"))
    """
    # A reload forgets what was registered, with us as without.
    assert printed(script, stand_in).split() == ["fourth.Fourth", "mine", *2 * ["fourth.Fourth"]]


def test_an_import_that_fails_fails_as_it_does_without_us_and_may_be_repeated(
    stand_in: Path,
) -> None:
    module = stand_in / "lance_namespace.py"
    script = f"""
        from pathlib import Path
        module = Path({str(module)!r})
        text = module.read_text()
        module.write_text("import no_such_module")
        for _ in range(2):
            try:
                import lance_namespace
            except ModuleNotFoundError as error:
                print(error.name, "lance_namespace" in sys.modules)
        module.write_text(text)
        import lance_namespace
        print(lance_namespace.connect("fourth"))
    """
    shown = printed(script, stand_in)
    assert shown.split() == [*2 * ["no_such_module", "False"], "fourth.Fourth"]


@pytest.mark.parametrize(
    "content", ["", "_REGISTERED_IMPLS = None", "_REGISTERED_IMPLS = ['hive']"]
)
def test_a_lance_namespace_of_another_shape_is_left_alone(tmp_path: Path, content: str) -> None:
    (tmp_path / "lance_namespace.py").write_text(content)
    script = "import lance_namespace; print(vars(lance_namespace).get('_REGISTERED_IMPLS'))"
    assert printed(script, tmp_path) == str(eval(content.partition("= ")[2] or "None"))


def test_a_lance_namespace_that_is_missing_or_has_no_file_is_nothing_to_us(tmp_path: Path) -> None:
    script = """
        import importlib.util
        print(importlib.util.find_spec("lance_namespace"))
        (Path(sys.path[1]) / "lance_namespace").mkdir()
        importlib.invalidate_caches()
        import lance_namespace
        print(lance_namespace.__file__)
    """
    assert printed(f"from pathlib import Path\n{dedent(script)}", tmp_path) == "None\nNone"


def test_an_archive_has_the_names(stand_in: Path) -> None:
    archive = stand_in / "all.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for path in [*stand_in.glob("*.py"), *stand_in.glob("*/*")]:
            file.write(path, path.relative_to(stand_in))
    script = f"import lance_namespace{FOURTH}print(type(lance_namespace.__loader__).__name__)"
    assert printed(script, archive).split() == ["fourth.Fourth", "zipimporter"]


def test_a_frozen_lance_namespace_is_imported() -> None:
    """One of Python's own frozen modules, under that name: its loader is a class."""
    script = """
        import importlib.util
        from importlib.machinery import FrozenImporter
        class Frozen:
            @staticmethod
            def find_spec(name, path=None, target=None):
                if name == "lance_namespace":
                    return FrozenImporter.find_spec("__phello__")
        sys.meta_path.insert(1, Frozen)
        import io, contextlib
        with contextlib.redirect_stdout(io.StringIO()):
            spec = importlib.util.find_spec("lance_namespace")
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
        print(module.__loader__.__name__)
    """
    assert printed(script) == "FrozenImporter"


OTHER_HOOKS = """
    import importlib.util
    class Reentrant:  # as wrapt and tracers do: they find the module again from the front
        busy = False
        def find_spec(self, name, path=None, target=None):
            if name != "lance_namespace" or self.busy:
                return None
            self.busy = True
            try:
                return importlib.util.find_spec(name)
            finally:
                self.busy = False
    class Old:  # without find_spec, as before Python 3.4
        def find_module(self, name, path=None):
            return None
    class Refusing:
        def find_spec(self, name, path=None, target=None):
            return None
"""


@pytest.mark.parametrize("place", [0, 1, 99], ids=["in front", "behind", "last"])
def test_other_hooks_of_the_import_system_go_together_with_ours(stand_in: Path, place: int) -> None:
    insert = f"""
        for hook in (Reentrant(), Old(), Refusing()):
            sys.meta_path.insert({place}, hook)
        import lance_namespace
        print(lance_namespace.connect("fourth"))
    """
    assert printed(dedent(OTHER_HOOKS) + dedent(insert), stand_in) == "fourth.Fourth"


def test_threads_that_import_at_once_all_have_the_names(stand_in: Path) -> None:
    module = stand_in / "lance_namespace.py"
    module.write_text(f"import time; time.sleep(0.05)\n{module.read_text()}")
    script = """
        from concurrent.futures import ThreadPoolExecutor
        from threading import Barrier
        together = Barrier(16)
        def name(_):
            together.wait()
            import lance_namespace
            return lance_namespace.connect("fourth")
        with ThreadPoolExecutor(16) as threads:
            print(set(threads.map(name, range(16))))
    """
    assert printed(script, stand_in) == "{'fourth.Fourth'}"


# -- the client of REST ----------------------------------------------------------------------------

CLIENT = "lance_namespace_urllib3_client"


def test_the_methods_of_the_rest_client_are_imported_when_they_are_used() -> None:
    script = f"""
        import sys, lance_bridge, lance_namespace, {CLIENT}.models
        assert hasattr({CLIENT}, "__path__") and not hasattr({CLIENT}, "__wrapped__")
        deferred = not any(name.startswith("{CLIENT}.api.") for name in sys.modules)
        from {CLIENT} import TableApi
        print(deferred, TableApi.__module__, "__getattr__" in vars({CLIENT}))
    """
    expected = f"True {CLIENT}.api.table_api False"
    assert printed(script, CORE, with_packages=True) == expected


@pytest.mark.parametrize(
    "module", ["lance_bridge_server.app", "lance_bridge_server.queries.preload"]
)
def test_workers_of_a_gateway_do_not_import_the_rest_client(module: str) -> None:
    script = f"import sys, {module}; print('{CLIENT}.api.table_api' in sys.modules)"
    done = run(f"{START}{script}", CORE, CORE.parent / "apps", ADAPTERS, with_packages=True)
    assert (done.stdout.strip(), done.returncode) == ("False", 0), done.stderr


def test_a_process_without_lance_bridge_imports_the_rest_client_as_it_is() -> None:
    script = f"""
        import sys, {CLIENT}
        print("{CLIENT}.api.table_api" in sys.modules, "__getattr__" in vars({CLIENT}))
    """
    assert printed(script, CORE, with_packages=True) == "True False"


@pytest.mark.parametrize(
    "use",
    [
        "import {0}; print({0}.api.table_api.__name__)",
        "import {0}.rest as rest, {0}; print({0}.api_client.rest is rest and '{0}.api.table_api')",
        "from {0} import *; print(TableApi.__module__)",
        "from {0} import AddColumnsEntry, api; print(api.table_api.__name__)",
        "import {0}; print('TableApi' in dir({0}) and {0}.TableApi.__module__)",
    ],
)
def test_every_way_to_use_the_rest_client_works(use: str) -> None:
    script = f"import lance_bridge; {use.format(CLIENT)}"
    assert printed(script, CORE, with_packages=True) == f"{CLIENT}.api.table_api"


def test_a_name_that_the_rest_client_lacks_is_an_error() -> None:
    script = f"""
        import lance_bridge, {CLIENT}
        try:
            {CLIENT}.NoApi
        except AttributeError as error:
            print(error)
    """
    expected = f"module '{CLIENT}' has no attribute 'NoApi'"
    assert printed(script, CORE, with_packages=True) == expected


def test_a_rest_client_that_is_one_file_is_imported_at_once(tmp_path: Path) -> None:
    (tmp_path / f"{CLIENT}.py").write_text("VERSION = 1")
    script = f"import lance_bridge, {CLIENT}; print(vars({CLIENT})['VERSION'])"
    assert printed(script, tmp_path, CORE) == "1"
