"""What may go wrong in a sweep, and that it goes on."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from command_line import OWN_SWEEP, CommandLine

from hpo.adapters.training_session import read_log

pytestmark = pytest.mark.timeout(240)
WORST = 1e-3


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of a few megabytes; where this process may mount none, a folder (and the kernel limits the size of files)."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(disk)], capture_output=True, check=False)
    yield disk
    if mounted.returncode == 0:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


def _wait_for(path: Path, larger_than: int = -1, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not (path.exists() and path.stat().st_size > larger_than):
        assert time.monotonic() < deadline, f"{path} did not appear or grow"
        time.sleep(0.05)


def _steps_are_whole(run: Path) -> bool:
    logs = [read_log(log.parent)["step"] for log in (run / "trials").glob("*/log.csv")]
    return all(np.array_equal(steps, np.arange(1, steps.size + 1)) for steps in logs)


def _study(run: Path) -> optuna.Study:
    backend = optuna.storages.journal.JournalFileBackend(str(run / "study.journal"))
    return optuna.load_study(study_name="own", storage=optuna.storages.JournalStorage(backend))


@pytest.mark.slow
def test_a_diverging_candidate_is_stopped_and_the_sweep_goes_on(hpo, own_sweep):
    config = hpo.write(own_sweep(trouble_lr=WORST, trouble="nan"))
    # Proxies of these settings diverge as well, as they would in life.
    code, out, err = hpo("sweep", config, "--out", hpo.run, "--json")
    assert code == 0, err
    trial = json.loads(out)["trials"][0]
    assert trial["state"] == "diverged"
    assert trial["reason"] == "non_finite"
    assert read_log(hpo.run / "trials" / "trial-00")["step"].size == 61
    told = _study(hpo.run).trials[0]
    assert told.state.name == "PRUNED"
    assert told.user_attrs["reason"] == "diverged"
    assert "trial-00: step 61 of 600, diverged" in err


@pytest.mark.slow
def test_running_out_of_memory_is_told_apart_with_its_setting(hpo, own_sweep):
    config = hpo.write(own_sweep(trouble_lr=WORST, trouble="memory"))
    code, out, err = hpo("sweep", config, "--out", hpo.run, "--json")
    assert code == 0, err
    trial = json.loads(out)["trials"][0]
    assert (trial["state"], trial["reason"]) == ("out_of_memory", "asked for 3 GB")
    assert "out_of_memory (asked for 3 GB) with lr 0.001" in err
    assert "starts again" not in err  # the same would happen
    assert _study(hpo.run).trials[0].state.name == "FAIL"


@pytest.mark.slow
def test_a_killed_workers_trial_goes_on_from_its_checkpoint(hpo, own_sweep):
    config = own_sweep(trouble_lr=1e-2, trouble="die", flag=str(hpo.folder / "died"), sleep_s=0.01)
    code, out, err = hpo("sweep", hpo.write({**config, "checkpoint_every_s": 0.1}), "--out", hpo.run, "--json")
    assert code == 0, err
    assert (hpo.folder / "died").exists()
    assert "starts again" in err
    assert {trial["state"] for trial in json.loads(out)["trials"]} == {"winner", "stopped"}
    assert _steps_are_whole(hpo.run)


@pytest.mark.slow
def test_if_all_candidates_fail_the_sweep_says_so(hpo, own_sweep):
    config = own_sweep(n_steps="many")
    config["proxies"] = {"sizes": [{"n_params": 1000, "n_steps": 300}], "settings": 2}
    config["recipe"] = "own_recipe:recipe"
    (hpo.folder / "own_recipe.py").write_text(
        "from hpo.core.recipe import Recipe\n"
        "from hpo.core.schedules import schedule\n"
        "def recipe(settings):\n"
        "    n = 1000 if settings['n_steps'] == 300 else 4000\n"
        "    return Recipe(schedule=schedule('linear'), n_params=n, n_tokens=10 * n, batch_tokens=100)\n"
    )
    code, out, err = hpo("sweep", hpo.write(config), "--out", hpo.run, "--json")
    assert code == 1
    assert json.loads(out)["error"].startswith("no candidate could be trained to the stopping point; trial-00: failed: ")
    assert {trial["state"] for trial in json.loads(out)["trials"]} == {"failed"}
    assert "no candidate could be trained to the stopping point; trial-00: failed: " in err
    assert "Traceback" not in err
    assert (hpo.run / "trials" / "trial-00" / "error.txt").exists()


@dataclass
class KilledTwice:
    """A sweep whose driver was killed among its proxies and, after a resume, among the selected; its journal then cut short."""

    run: Path
    untouched: bool
    decided: bytes
    result: dict[str, Any]


@pytest.fixture(scope="module")
def killed_twice(tmp_path_factory: pytest.TempPathFactory) -> KilledTwice:
    hpo = CommandLine(tmp_path_factory.mktemp("killed"))
    hurry = hpo.folder / "hurry"
    target = {**OWN_SWEEP["target"], "sleep_s": 0.01, "late_sleep_s": 0.01, "hurry": str(hurry)}
    with hpo.start("sweep", hpo.write({**OWN_SWEEP, "target": target}), "--out", hpo.run) as driver:
        _wait_for(hpo.run / "trials" / "proxy-1-00" / "outcome.json")
        finished_log = (hpo.run / "trials" / "proxy-1-00" / "log.csv").stat().st_mtime_ns
        driver.send_signal(signal.SIGKILL)
    hurry.touch()
    with hpo.start("sweep", "--resume", hpo.run) as driver:
        _wait_for(hpo.run / "decisions.jsonl")
        time.sleep(1.5)
        driver.send_signal(signal.SIGKILL)
    assert not (hpo.run / "result.json").exists(), "the driver was killed too late"
    decided, journal = (hpo.run / "decisions.jsonl").read_bytes(), hpo.run / "study.journal"
    journal.write_bytes(journal.read_bytes()[:-7])
    code, out, err = hpo("sweep", "--resume", hpo.run, "--json")
    assert code == 0, err
    untouched = (hpo.run / "trials" / "proxy-1-00" / "log.csv").stat().st_mtime_ns == finished_log
    return KilledTwice(hpo.run, untouched, decided, json.loads(out))


@pytest.mark.slow
def test_a_killed_driver_loses_nothing_and_counts_nothing_twice(killed_twice, undisturbed):
    assert killed_twice.untouched
    assert _steps_are_whole(killed_twice.run)
    assert {**killed_twice.result, "seconds": 0} == {**undisturbed[1], "seconds": 0}


@pytest.mark.slow
def test_a_driver_killed_in_the_last_phase_decides_nothing_again(killed_twice):
    assert (killed_twice.run / "decisions.jsonl").read_bytes() == killed_twice.decided
    assert killed_twice.result["flops_spent"]["winner"] == pytest.approx(0.8 * 6 * 4000 * 600 * 100)


@pytest.mark.slow
def test_a_journal_cut_in_the_middle_of_a_line_is_mended(killed_twice):
    trials = _study(killed_twice.run).trials
    assert [t.state.name for t in trials].count("COMPLETE") == 1
    assert all(t.state.is_finished() for t in trials)


@pytest.mark.slow
def test_ctrl_c_and_sigterm_save_and_name_the_command_that_goes_on(hpo, own_sweep):
    hurry = hpo.folder / "hurry"
    config = hpo.write({**own_sweep(sleep_s=0.03, hurry=str(hurry)), "checkpoint_every_s": 3600.0})
    log, done = hpo.run / "trials" / "proxy-1-00" / "log.csv", 0
    for number, arguments in ((signal.SIGINT, (config, "--out", hpo.run)), (signal.SIGTERM, ("--resume", hpo.run))):
        with hpo.start("sweep", *arguments) as driver:
            _wait_for(log, larger_than=done)
            time.sleep(1.0)
            driver.send_signal(number)
            out, err = driver.communicate()
        assert driver.returncode == 130
        assert out == ""
        assert f"go on with: hpo sweep --resume {hpo.run}" in err
        assert "Traceback" not in err
        assert list((hpo.run / "trials").glob("proxy-1-*/checkpoint-*"))
        assert not _workers_of(hpo.run)
        done = log.stat().st_size
    hurry.touch()
    code, _, err = hpo("sweep", "--resume", hpo.run)
    assert code == 0, err
    assert _steps_are_whole(hpo.run)


@pytest.mark.slow
def test_a_hanging_trial_is_ended_tried_again_and_failed_and_the_rest_goes_on(hpo, own_sweep):
    config = {**own_sweep(trouble_lr=WORST, trouble="hang", trouble_from=2000), "hang_timeout_s": 3.0}
    code, out, err = hpo("sweep", hpo.write(config), "--out", hpo.run, "--json")
    assert code == 0, err
    trial = json.loads(out)["trials"][0]
    assert trial["state"] == "failed"
    assert trial["reason"].startswith("hung: no step for 3 s")
    assert "proxy-1-00 starts again" in err
    assert "own_training.py" in (hpo.run / "trials" / "trial-00" / "hang.txt").read_text()
    assert json.loads(out)["winner"]["lr"] == pytest.approx(1e-2)  # as undisturbed
    assert _steps_are_whole(hpo.run)


@pytest.mark.slow
def test_a_trial_that_always_fails_is_tried_again_and_failed_and_the_rest_goes_on(hpo, own_sweep):
    config = {**own_sweep(trouble_lr=WORST, trouble="error", trouble_from=4000), "retries": 2}
    code, out, err = hpo("sweep", hpo.write(config), "--out", hpo.run, "--json")
    assert code == 0, err
    trial = json.loads(out)["trials"][0]
    assert (trial["state"], trial["reason"]) == ("failed", "RuntimeError: no such luck")
    assert err.count("trial-00 starts again") == 2
    assert "trial-00: step 60 of 600, failed (RuntimeError: no such luck) with lr 0.001" in err
    assert _study(hpo.run).trials[0].state.name == "FAIL"
    assert _steps_are_whole(hpo.run)


@pytest.mark.slow
def test_a_disk_full_at_a_checkpoint_fails_no_trial_and_a_resume_gives_the_same_result(hpo, own_sweep, small_disk):
    flag, run = hpo.folder / "there is space", small_disk / "run"
    settings = {"trouble_lr": 1e-2, "trouble": "full disk", "flag": str(flag), "disk": str(small_disk)}
    config = hpo.write(own_sweep(**settings))
    code, out, err = hpo("sweep", config, "--out", run, "--set", "checkpoint_every_s=0.05", "--json")
    assert code == 1, err
    assert "Traceback" not in err
    assert re.search(r"hpo: (No space left on device|File too large): ", err.splitlines()[-1])
    assert f"go on with: hpo sweep --resume {run}" in err
    assert {one["state"] for one in json.loads(out)["trials"]} <= {"unfinished", "reached"}
    flag.touch()
    (small_disk / "ballast").unlink()
    code, out, err = hpo("sweep", "--resume", run, "--json")
    assert code == 0, err
    assert _steps_are_whole(run)
    assert json.loads(out)["winner"]["lr"] == pytest.approx(1e-2)
    assert {one["state"] for one in json.loads(out)["trials"]} == {"winner", "stopped"}


@pytest.mark.slow
def test_a_clock_that_jumps_changes_nothing(hpo, own_sweep):
    """Driver and workers see the wall clock jump by a day in the middle of the sweep, and later two days back."""
    flag, clock = hpo.folder / "jumped", hpo.folder / "clock"
    clock.mkdir()
    (clock / "sitecustomize.py").write_text(
        "import os, time\n"
        "_seconds, _nanoseconds = time.time, time.time_ns\n"
        f"def _jump(): return 86400 * (os.path.exists({str(flag)!r}) - 2 * os.path.exists({str(flag) + '-back'!r}))\n"
        "time.time = lambda: _seconds() + _jump()\n"
        "time.time_ns = lambda: _nanoseconds() + 10**9 * _jump()\n"
    )
    hpo.environment["PYTHONPATH"] = f"{clock}:{hpo.environment['PYTHONPATH']}"
    config = own_sweep(trouble_lr=1e-2, trouble="clock", flag=str(flag), sleep_s=0.002)
    config |= {"time_budget": "1h", "hang_timeout_s": 200.0}
    code, out, err = hpo("sweep", hpo.write(config), "--out", hpo.run, "--json")
    assert code == 0, err
    assert flag.exists()
    assert flag.with_name("jumped-back").exists()
    assert "starts again" not in err
    result = json.loads(out)
    assert result["winner"]["lr"] == pytest.approx(1e-2)  # as undisturbed
    assert {trial["state"] for trial in result["trials"]} == {"winner", "stopped"}
    assert 0 < result["seconds"] < 3600
    assert _steps_are_whole(hpo.run)


@pytest.mark.slow
def test_a_second_driver_on_one_study_is_refused_and_the_first_ends_well(hpo, own_sweep):
    url = f"sqlite:///{hpo.folder}/study.db"
    config = hpo.write({**own_sweep(sleep_s=0.01), "storage": url})
    with hpo.start("sweep", config, "--out", hpo.run, "--json") as driver:
        _wait_for(hpo.run / "trials" / "proxy-1-00" / "log.csv")
        code, _, err = hpo("sweep", config, "--out", hpo.folder / "other")
        out, first_err = driver.communicate()
    assert code == 2
    assert f"name: expected a name that is new in {url}; found own" in err.splitlines()[-1]
    assert not (hpo.folder / "other").exists()
    assert driver.returncode == 0, first_err
    states = [trial.state.name for trial in optuna.load_study(study_name="own", storage=url).trials]
    assert sorted(states) == ["COMPLETE", *["PRUNED"] * 4]
    assert json.loads(out)["winner"]["lr"] == pytest.approx(1e-2)


@pytest.mark.slow
def test_workers_that_cannot_start_are_told_of_at_once(hpo, own_sweep):
    """A file of the user's hides a module of Python's from the workers, which look in the current folder first."""
    (hpo.folder / "json.py").write_text("raise RuntimeError('not the module you meant')\n")
    command = [str(Path(sys.executable).with_name("hpo")), "sweep", str(hpo.write(own_sweep())), "--out", str(hpo.run)]
    began = time.monotonic()
    done = subprocess.run(command, cwd=hpo.folder, env=hpo.environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == "hpo: workers cannot start: RuntimeError: not the module you meant"
    assert time.monotonic() - began < 60
    assert not hpo.run.exists()


@pytest.mark.slow
def test_a_ray_that_does_not_start_is_one_line_with_the_command_that_goes_on(hpo, own_sweep):
    hpo.environment["RAY_TMPDIR"] = str(hpo.write(own_sweep()))  # a file, where Ray needs a folder
    code, out, err = hpo("sweep", hpo.folder / "sweep.yaml", "--out", hpo.run, "--json")
    assert code == 1
    last = err.splitlines()[-1]
    assert last.startswith("hpo: Ray does not start on this machine: NotADirectoryError: ")
    assert last.endswith(f"go on with: hpo sweep --resume {hpo.run}")
    assert "Traceback" not in err
    assert "Traceback" in (hpo.run / "logs" / "ray.log").read_text()
    assert json.loads(out)["error"] in last


@pytest.mark.slow
def test_a_run_folder_in_use_is_refused(hpo, own_sweep):
    config = hpo.write(own_sweep(sleep_s=0.02))
    with hpo.start("sweep", config, "--out", hpo.run) as driver:
        _wait_for(hpo.run / "study.journal")
        code, out, err = hpo("sweep", "--resume", hpo.run)
        driver.send_signal(signal.SIGINT)
        driver.communicate()
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert f"in use by process {driver.pid}" in err


@pytest.mark.slow
def test_a_machine_too_small_for_one_trial_is_bad_input(hpo, own_sweep):
    config = hpo.write({**own_sweep(), "resources": {"cpu": 4096.0}})
    code, _, err = hpo("sweep", config, "--out", hpo.run)
    assert code == 2
    assert "resources.cpu: expected at most the" in err.splitlines()[-1]
    assert not hpo.run.exists()


def _workers_of(run: Path) -> list[str]:
    """Return the command lines of processes that still have a file of the run open."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            held = [link.readlink() for link in (process / "fd").iterdir()]
        except OSError:
            continue
        if any(str(path).startswith(str(run)) for path in held):
            found.append((process / "cmdline").read_text())
    return found
