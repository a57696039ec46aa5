"""The watch over a process that makes no step any more."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from hpo.engine.hang_watch import hang_watch, has_hung

HANGS = """
import sys, time
from pathlib import Path
from hpo.engine.hang_watch import hang_watch

def stuck_here():
    time.sleep(60)

with hang_watch(Path(sys.argv[1]), 0.5) as step:
    for _ in range(10):
        time.sleep(0.1)
        step()
    stuck_here()
"""


def test_a_process_without_steps_ends_and_leaves_where_it_hung(tmp_path: Path, repository: Path):
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", HANGS, str(tmp_path)], cwd=repository, timeout=30, check=False)
    assert done.returncode == 1
    assert time.monotonic() - began < 20
    assert has_hung(tmp_path)
    assert "stuck_here" in (tmp_path / "hang.txt").read_text()


def test_steps_keep_it_alive_and_nothing_is_left(tmp_path: Path):
    with hang_watch(tmp_path, 0.6) as step:
        for _ in range(9):
            time.sleep(0.1)
            step()
    assert not has_hung(tmp_path)
    assert not list(tmp_path.iterdir())


def test_without_a_timeout_nothing_is_watched(tmp_path: Path):
    with hang_watch(tmp_path, None) as step:
        step()
    assert not list(tmp_path.iterdir())
