"""The guide's code runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest


def test_the_guides_blocks_run_as_one_script(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (repository / "docs" / "optuna.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    assert len(blocks) >= 6
    monkeypatch.chdir(tmp_path)
    exec(compile("\n".join(blocks), "docs/optuna.md", "exec"), {"__name__": "guide"})
