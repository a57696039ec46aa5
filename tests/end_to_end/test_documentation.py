"""Everything that a page shows runs: its blocks of Python, its commands, its configurations; and the site builds from it.

A page's blocks run in order, in one empty folder: ``python`` in one namespace, ``sh`` as commands of ``hpo``. A block that
begins with a comment naming a file (``# first.yaml``) is that file. ``sh slow`` and pages of torch wait for the slow tier.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import typer
from child_processes import environment_of

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("README.md", "CONTRIBUTING.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")))
TESTED_BY = {
    "CONTRIBUTING.md": "tests/unit/test_extensions.py",
    "docs/family.md": "tests/end_to_end/test_family_guide.py",
    "docs/optuna.md": "tests/contract/test_optuna_guide.py",
    "docs/ray.md": "tests/contract/test_ray_tuner.py",
    "docs/sweep.md": "tests/end_to_end/test_sweep_guide.py",
}
ELSEWHERE = {page for page, test in TESTED_BY.items() if (ROOT / test).is_file()}
"""Pages whose blocks need more than an empty folder: tests of their own run them."""
SLOW = {"docs/parameterisation.md"}
BEFORE = {
    "docs/parameterisation.md": """
import torch
width, n_layers = 32, 2


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.mlp = torch.nn.LayerNorm(width), torch.nn.Linear(width, width)


model = torch.nn.Module()
model.wte, model.lm_head = torch.nn.Embedding(64, width), torch.nn.Linear(width, 64, bias=False)
model.ln_f, model.h = torch.nn.LayerNorm(width), torch.nn.ModuleList(Block() for _ in range(n_layers))
""",
}
"""What a page takes for granted."""
_FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"# ([\w./-]+\.(?:yaml|py))\b")


@dataclass(frozen=True)
class Block:
    """One fenced block: what stands after the fence, and the text."""

    kind: str
    text: str

    @property
    def file(self) -> str | None:
        """The file that the block is, if it says so."""
        named = _FILE.match(self.text)
        return None if named is None else named[1]


def blocks(page: str) -> list[Block]:
    return [Block(kind.strip(), text) for kind, text in _FENCE.findall((ROOT / page).read_text(encoding="utf-8"))]


def follow(page: str, folder: Path, *, slow: bool) -> None:
    """Do what a page says, in ``folder``; without ``slow`` up to the first block that is marked so."""
    names: dict[str, Any] = {"__name__": "page"}
    exec(compile(BEFORE.get(page, ""), page, "exec"), names)
    for block in blocks(page):
        if block.file is not None:
            (folder / block.file).write_text(block.text, encoding="utf-8")
        elif block.kind == "python":
            exec(compile(block.text, page, "exec"), names)
        elif block.kind == "sh slow" and not slow:
            return
        elif block.kind in ("sh", "sh slow"):
            for line in block.text.splitlines():
                (by_itself if slow else command)(line, folder)


def command(line: str, _: Path) -> None:
    """Run a command in this process, which has imported everything already."""
    from hpo.cli import main

    said = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        patch.setattr(sys, "argv", shlex.split(line, comments=True))
        assert sys.argv[0] == "hpo", line
        with pytest.raises(SystemExit) as left:
            main()
    assert not left.value.code, f"{line}: {said.getvalue()}"


def by_itself(line: str, folder: Path) -> None:
    """Run a command in a process of its own: Ray starts its workers from there."""
    program, *arguments = shlex.split(line, comments=True)
    assert program == "hpo", line
    environment = environment_of(ROOT, OMP_NUM_THREADS="1")
    run = [sys.executable, "-m", "hpo", *arguments]
    done = subprocess.run(run, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{line}: {done.stderr}"


def pages(kinds: tuple[str, ...], *, slow: bool) -> list[str]:
    has = {page: {block.kind for block in blocks(page)} for page in PAGES if page not in ELSEWHERE}
    return [page for page in has if has[page] & set(kinds) and (page in SLOW) <= slow]


@pytest.mark.parametrize("page", pages(("python", "sh"), slow=False))
def test_a_page_can_be_followed(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    follow(page, tmp_path, slow=False)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("page", sorted({*pages(("sh slow",), slow=True), *SLOW}))
def test_a_page_of_training_can_be_followed(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    follow(page, tmp_path, slow=True)


@pytest.mark.parametrize("page", PAGES)
def test_no_block_escapes(page: str) -> None:
    """Blocks of shell scripts and without a kind are not run, but the next test looks at their commands."""
    kinds = {block.kind for block in blocks(page)}
    assert page in ELSEWHERE or kinds <= {"python", "sh", "sh slow", "yaml", "math", "text", "bash", ""}


@pytest.mark.parametrize("page", PAGES)
def test_every_command_that_a_page_names_exists(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    lines = [line.strip() for line in text.splitlines() if re.match(r"\s*hpo [a-z]", line)]
    lines += re.findall(r"`(hpo [a-z][^`\n]*)`", text)
    wrong = [f"{line}: {unknown}" for line in lines if (unknown := unknown_words(line))]
    assert wrong == []


@lru_cache(maxsize=1)
def commands() -> Any:
    from hpo.cli import app

    return typer.main.get_command(app)


def unknown_words(line: str) -> list[str]:
    """Return the words of a command line that ``hpo`` does not know: a command, or options."""
    node: Any = commands()
    words = line.partition("#")[0].split()[1:]
    while words and hasattr(node, "commands"):
        if words[0] not in node.commands:
            return [] if words[0].startswith("-") else [words[0]]
        node = node.commands[words.pop(0)]
    known = {option for parameter in node.params for option in (*parameter.opts, *parameter.secondary_opts)}
    given = [word.partition("=")[0].rstrip(",.;:)]") for word in words if re.match(r"[\[(]?--?[a-zA-Z]", word)]
    return [word for word in given if word.lstrip("[(") not in known | {"--help", "-h"}]


def test_reasons_and_fields_of_a_decision_are_all_explained() -> None:
    from hpo.core.decision import REASONS

    page = (ROOT / "docs" / "decisions.md").read_text(encoding="utf-8")
    assert [reason for reason in REASONS if f"`{reason}`" not in page] == []


def test_the_reference_lists_every_public_name() -> None:
    import hpo

    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^::: ([\w.]+)$", page, flags=re.MULTILINE))
    homes = {f"{home}.{name}" for name, home in hpo._HOMES.items()}
    assert homes - listed == set()


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_the_site_builds_without_a_warning_and_asks_nothing_of_a_network(tmp_path: Path) -> None:
    pytest.importorskip("material", reason="MkDocs Material absent: pip install '.[docs]'")
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    environment = environment_of(ROOT, NO_MKDOCS_2_WARNING="1")
    done = subprocess.run(build, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    for page in (tmp_path / "site").rglob("*.html"):
        html = page.read_text(encoding="utf-8")
        assert re.findall(r"""<(?:script|img|iframe|source)[^>]*\ssrc=["']?https?:""", html) == []
        assert re.findall(r"""<link[^>]*rel=["']?(?:stylesheet|preconnect|icon)[^>]*href=["']?https?:""", html) == []
    assert "<math" in (tmp_path / "site" / "theory.html").read_text(encoding="utf-8")
    assert "Where it loses" in (tmp_path / "site" / "benchmarks.html").read_text(encoding="utf-8")
