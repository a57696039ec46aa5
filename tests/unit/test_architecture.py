"""The rules of CONTRIBUTING.md that a reader of one module cannot see: who may import whom, and what the core may touch."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = ("hpo", "proxies", "search_spaces", "bench")
MAX_LINES = 400

# An arrow may be followed further: who may import the engine may import what the engine may.
ARROWS = {
    "hpo.cli": {"bench", "hpo.commands", "hpo.engine", "hpo.reporting"},
    "hpo.commands": {"bench", "hpo.engine", "hpo.reporting"},
    "bench": {"hpo.engine", "hpo.reporting", "proxies"},
    "hpo.engine": {"hpo.adapters", "proxies", "search_spaces"},
    "hpo.reporting": {"hpo.adapters"},
    "hpo.adapters": {"hpo.core"},
    "proxies": {"hpo.core"},
    "search_spaces": {"hpo.core"},
    "hpo.core": set(),
}
CORE_MAY_IMPORT = {"numpy", "scipy"}
TOUCHES_THE_WORLD = {
    *("os", "io", "tempfile", "shutil", "glob", "pickle", "shelve", "sqlite3", "mmap", "importlib"),  # files
    *("time", "datetime", "sched"),  # clocks
    *("logging", "warnings", "getpass", "platform", "signal"),  # logs and environment
    *("socket", "ssl", "http", "urllib", "subprocess", "threading", "multiprocessing", "asyncio", "concurrent"),  # others
    "random",  # a global generator
}
# pathlib is allowed, as the type of an argument; what would make a path touch the disk is not.
PATH_ACTS = {"open", "read_text", "write_text", "read_bytes", "write_bytes", "exists", "is_file", "is_dir", "iterdir", "mkdir"}
GENERATORS = {"Generator", "default_rng", "SeedSequence", "BitGenerator", "PCG64", "Philox"}
HEAVY = ("torch", "ray", "optuna")


def python_files(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (line, module) of every import anywhere in a file, those for type checkers and inside functions included."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.lineno, node.module or ""
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def layer(module: str) -> str | None:
    """Return the layer a module of ours belongs to; None for other people's, and for `hpo` itself."""
    if module == "proxies.__main__":
        return "hpo.cli"  # a command line like any other: it may draw figures, which the proxies may not
    first, _, rest = module.partition(".")
    name = f"hpo.{rest.partition('.')[0]}" if first == "hpo" else first
    return name if name in ARROWS else None


def reachable(start: str) -> set[str]:
    found = {start}
    for target in ARROWS[start]:
        found |= reachable(target)
    return found


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def loaded_by(code: str) -> set[str]:
    """Return the top-level modules loaded once `code` has run in a fresh interpreter."""
    report = f"{code}\nimport sys\nprint('\\n' + ' '.join(sorted({{name.partition('.')[0] for name in sys.modules}})))"
    run = subprocess.run([sys.executable, "-c", report], cwd=ROOT, capture_output=True, text=True, timeout=50, check=False)
    assert run.returncode == 0, run.stderr
    return set(run.stdout.splitlines()[-1].split())


def test_every_module_belongs_to_a_layer() -> None:
    homeless = [relative(p) for p in python_files(*SHIPPED) if layer(module_name(p)) is None]
    assert homeless == ["hpo/__init__.py"] or set(homeless) == {"hpo/__init__.py", "hpo/__main__.py"}


@pytest.mark.parametrize("name", sorted(ARROWS))
def test_imports_follow_the_arrows(name: str) -> None:
    wrong = [
        f"{relative(path)}:{line} imports {target}"
        for path in python_files(*SHIPPED)
        if layer(module_name(path)) == name
        for line, target in imports(path)
        if layer(target) is not None and layer(target) not in reachable(name)
    ]
    assert wrong == []


def test_core_imports_standard_library_numpy_and_scipy_only() -> None:
    allowed = (sys.stdlib_module_names - TOUCHES_THE_WORLD) | CORE_MAY_IMPORT | {"hpo"}
    wrong = [
        f"{relative(path)}:{line} imports {target}"
        for path in python_files("hpo/core")
        for line, target in imports(path)
        if target.partition(".")[0] not in allowed
    ]
    assert wrong == []


def test_core_neither_opens_prints_nor_draws_from_a_global_generator() -> None:
    wrong = [
        f"{relative(path)}:{node.lineno} uses {ast.unparse(node)}"
        for path in python_files("hpo/core")
        for node in ast.walk(tree(path))
        if _touches_the_world(node)
    ]
    assert wrong == []


def _touches_the_world(node: ast.AST) -> bool:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return node.func.id in ("open", "print", "input", "exec", "eval", "__import__")
    if not isinstance(node, ast.Attribute):
        return False
    owner = ast.unparse(node.value)
    if owner in ("np.random", "numpy.random"):
        return node.attr not in GENERATORS
    files = ("load", "save", "savez", "savez_compressed", "loadtxt", "savetxt", "genfromtxt", "fromfile", "memmap")
    return node.attr in PATH_ACTS or (owner in ("np", "numpy") and node.attr in files)


def test_import_hpo_loads_nothing_heavy() -> None:
    assert loaded_by("import hpo").isdisjoint((*HEAVY, "numpy", "scipy", "pandas"))


def test_the_core_loads_neither_torch_ray_nor_optuna() -> None:
    assert loaded_by("from hpo import CollapseModel, Curve, Recipe, decide").isdisjoint((*HEAVY, "pandas", "pyarrow"))


def test_help_loads_neither_torch_ray_nor_optuna() -> None:
    code = "import sys; sys.argv = ['hpo', '--help']\nfrom hpo.cli import main\ntry: main()\nexcept SystemExit: pass"
    assert loaded_by(code).isdisjoint(HEAVY)


def test_planning_with_proxies_loads_no_torch() -> None:
    assert loaded_by("import proxies.trainable, proxies.architecture").isdisjoint(HEAVY)


def test_every_public_name_can_be_loaded() -> None:
    import hpo

    assert set(hpo.__all__) == set(hpo._HOMES) | {"__version__"}
    for name in hpo.__all__:
        assert getattr(hpo, name) is not None


def test_unknown_public_name_is_an_attribute_error() -> None:
    import hpo

    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        hpo.Nothing  # noqa: B018 - the access is what is tested


def test_package_list_equals_the_tree() -> None:
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]["packages"]
    assert listed == sorted({module_name(p.parent / "__init__.py") for p in python_files(*SHIPPED)})


@pytest.mark.parametrize("folder", SHIPPED)
def test_package_ships_its_types(folder: str) -> None:
    assert (ROOT / folder / "py.typed").is_file()


def test_no_module_is_longer_than_400_lines() -> None:
    lengths = {relative(p): len(p.read_text(encoding="utf-8").splitlines()) for p in python_files(*SHIPPED)}
    assert {name: n for name, n in lengths.items() if n > MAX_LINES} == {}


def test_no_file_names_a_private_place() -> None:
    # Built from pieces, so that this file does not name them. `torch.library` and `network/work` are not meant.
    private = re.compile(
        r"(?<![\w.])/{}\b|(?<!\w)\.{}\b|{}test|shared/(?:design|method|style|peers)".format("work", "library", "venv")
    )
    found = [
        f"{relative(path)}:{number}: {line.strip()[:100]}"
        for path in _tracked_files()
        for number, line in enumerate(_text(path).splitlines(), start=1)
        if private.search(line)
    ]
    assert found == []


def _tracked_files() -> list[Path]:
    """Return the files git tracks or would track; all files outside hidden folders where there is no git."""
    try:
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split("\0")
    except (OSError, subprocess.CalledProcessError):
        listed = [p.relative_to(ROOT).as_posix() for folder in (*SHIPPED, "tests") for p in (ROOT / folder).rglob("*")]
    return [path for name in listed if name and (path := ROOT / name).is_file()]


def _text(path: Path) -> str:
    data = path.read_bytes()
    return "" if b"\0" in data else data.decode("utf-8", errors="replace")
