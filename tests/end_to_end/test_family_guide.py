"""The planning guide: its commands run as they stand, its pictures are what the commands draw, its numbers what they print."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pytest


def blocks(text: str, kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", text, flags=re.DOTALL)


@pytest.fixture
def guide(repository: Path) -> str:
    """The guide's text."""
    return (repository / "docs" / "family.md").read_text(encoding="utf-8")


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[[str], str]:
    """Run one line of the guide, which must succeed; returns its stdout."""
    from hpo.cli import main

    def line(text: str) -> str:
        monkeypatch.setattr(sys, "argv", shlex.split(text, comments=True))
        with pytest.raises(SystemExit) as stopped:
            main()
        out, err = capsys.readouterr()
        assert not stopped.value.code, f"{text}: {err}"
        return out

    return line


@pytest.mark.timeout(120)
def test_the_guides_commands_run_in_order(
    guide: str, run: Callable[[str], str], repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bench").symlink_to(repository / "bench")
    for block in blocks(guide, "yaml"):
        name = block.splitlines()[0].removeprefix("# ")
        (tmp_path / name).write_text(block, encoding="utf-8")
    lines = [line for block in blocks(guide, "sh") for line in block.splitlines()]
    assert len(lines) >= 12
    said = {line.partition("#")[0].strip(): run(line) for line in lines}
    assert "tau 0.5955, 90 % 0.4739 to 0.7484" in said[next(line for line in said if line.startswith("hpo fit-tau"))]
    assert "warning" in said["hpo plan --params 1e9 --tpp 20 --batch 4096"]
    for name in ("compression", "frontier"):
        assert (tmp_path / f"{name}.svg").read_text() == (repository / "docs" / "pictures" / f"{name}.svg").read_text()


def test_the_guides_table_of_compression_is_the_commands(guide: str, run: Callable[[str], str]) -> None:
    table = run("hpo efficiency compression --tpp 20,40,80,160,234,1000")
    printed = {cells[0]: cells[1:] for row in table.splitlines() if len(cells := re.findall(r"[-+]?[\d.]+%?", row)) == 7}
    for tpp in ("40", "80", "160", "234", "1000"):
        row = next(line for line in guide.splitlines() if line.startswith(f"| {tpp} |"))
        shown = [cell.strip().replace(" ", "").replace("−", "-") for cell in row.strip("|").split("|")]
        assert shown == [tpp, *printed[tpp]]
