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

with hang_watch(Path(sys.argv[1]), 0.5) as watch:
    for _ in range(10):
        time.sleep(0.1)
        watch.step()
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
    with hang_watch(tmp_path, 0.6) as watch:
        for _ in range(9):
            time.sleep(0.1)
            watch.step()
    assert not has_hung(tmp_path)
    assert not list(tmp_path.iterdir())


def test_without_a_timeout_nothing_is_watched(tmp_path: Path):
    with hang_watch(tmp_path, None) as watch:
        watch.step()
    assert not list(tmp_path.iterdir())


def test_waiting_for_somebody_else_is_no_hanging_and_the_watch_goes_on_after_it(tmp_path: Path, repository: Path):
    with hang_watch(tmp_path, 0.3) as watch:
        with watch.resting():
            time.sleep(0.9)
        watch.step()
    assert not has_hung(tmp_path)
    code = HANGS.replace("    stuck_here()\n", "    with watch.resting():\n        pass\n    stuck_here()\n")
    code = code.replace("0.5", "0.3").replace("range(10)", "range(1)")
    assert code != HANGS
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], cwd=repository, timeout=30, check=False)
    assert done.returncode == 1
    assert "stuck_here" in (tmp_path / "hang.txt").read_text()
