"""What may go wrong in a sweep, and that it goes on."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import numpy as np
import optuna
import pytest

from hpo.adapters.training_session import read_log

pytestmark = pytest.mark.timeout(240)
WORST = 1e-3


def _wait_for(*paths: Path, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not all(path.exists() for path in paths):
        assert time.monotonic() < deadline, f"{paths} did not appear"
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
    code, out, err = hpo("sweep", hpo.write(config), "--out", hpo.run)
    assert (code, out) == (1, "")
    assert "no candidate could be trained to the stopping point; trial-00: failed: " in err
    assert "Traceback" not in err
    assert (hpo.run / "trials" / "trial-00" / "error.txt").exists()


@pytest.mark.slow
def test_a_killed_driver_loses_nothing_and_counts_nothing_twice(hpo, own_sweep):
    config = hpo.write(own_sweep(sleep_s=0.01))
    with hpo.start("sweep", config, "--out", hpo.run) as driver:
        _wait_for(hpo.run / "trials" / "proxy-1-00" / "outcome.json")
        finished_log = (hpo.run / "trials" / "proxy-1-00" / "log.csv").stat().st_mtime_ns
        driver.send_signal(signal.SIGKILL)
    code, out, err = hpo("sweep", "--resume", hpo.run, "--json")
    assert code == 0, err
    assert (hpo.run / "trials" / "proxy-1-00" / "log.csv").stat().st_mtime_ns == finished_log
    assert _steps_are_whole(hpo.run)
    uninterrupted = hpo("sweep", config, "--out", hpo.folder / "other", "--json", "--set", "target.sleep_s=0")
    told, expected = json.loads(out), json.loads(uninterrupted[1])
    assert {**told, "seconds": 0} == {**expected, "seconds": 0}


@pytest.mark.slow
def test_a_killed_driver_goes_on_in_the_last_phase_too(hpo, own_sweep):
    config = hpo.write(own_sweep(sleep_s=0.01))
    with hpo.start("sweep", config, "--out", hpo.run) as driver:
        _wait_for(hpo.run / "decisions.jsonl")
        time.sleep(1.5)
        driver.send_signal(signal.SIGKILL)
    decided = (hpo.run / "decisions.jsonl").read_bytes()
    code, out, err = hpo("sweep", "--resume", hpo.run, "--json")
    assert code == 0, err
    assert (hpo.run / "decisions.jsonl").read_bytes() == decided
    assert _steps_are_whole(hpo.run)
    assert [t.state.name for t in _study(hpo.run).trials].count("COMPLETE") == 1
    assert json.loads(out)["flops_spent"]["winner"] == pytest.approx(0.8 * 6 * 4000 * 600 * 100)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_saves_and_names_the_command_that_goes_on(hpo, own_sweep, number):
    config = hpo.write({**own_sweep(sleep_s=0.02), "checkpoint_every_s": 3600.0})
    with hpo.start("sweep", config, "--out", hpo.run) as driver:
        _wait_for(hpo.run / "trials" / "proxy-1-00" / "log.csv")
        time.sleep(1.5)
        driver.send_signal(number)
        out, err = driver.communicate()
    assert driver.returncode == 130
    assert out == ""
    assert f"go on with: hpo sweep --resume {hpo.run}" in err
    assert "Traceback" not in err
    assert list((hpo.run / "trials").glob("proxy-1-*/checkpoint-*"))
    assert not _workers_of(hpo.run)
    code, _, err = hpo("sweep", "--resume", hpo.run)
    assert code == 0, err
    assert _steps_are_whole(hpo.run)


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
