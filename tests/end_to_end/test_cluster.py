"""A sweep on a Ray cluster that runs already, with several raylets, one of which is lost."""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from hpo.adapters.training_session import read_log

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

CLUSTER = """
import sys
from ray.cluster_utils import Cluster

node = {"num_cpus": 1, "object_store_memory": 80 * 2**20}
cluster = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
other = cluster.add_node(**node)
print(cluster.address, flush=True)
for line in sys.stdin:
    cluster.remove_node(other, allow_graceful=False)
    print("gone", flush=True)
cluster.shutdown()
"""


class Raylets:
    """Two raylets of one CPU each, in a process of their own."""

    def __init__(self, environment: dict[str, str]) -> None:
        command = [sys.executable, "-c", CLUSTER]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True)
        assert self.process.stdout is not None
        self.address = next(line.strip() for line in self.process.stdout if line.startswith("127.0.0.1") or line[0].isdigit())

    def lose_one(self) -> None:
        """Kill the second raylet with everything on it."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("lose\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "gone\n"

    def end(self) -> None:
        """Take the cluster down."""
        self.process.communicate(timeout=60)


@pytest.fixture
def raylets(hpo) -> Iterator[Raylets]:
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32), "RAY_USAGE_STATS_ENABLED": "0"}
    hpo.environment |= token
    made = Raylets(hpo.environment)
    yield made
    made.end()


def test_a_sweep_survives_the_loss_of_a_raylet_with_the_same_winner(hpo, own_sweep, raylets):
    block = {"address": raylets.address, "runtime_env": {"env_vars": {"SET_BY_THE_SWEEP": "1"}}}
    block["storage_path"] = f"file://{hpo.folder}/ray-storage"
    hurry = hpo.folder / "hurry"
    config = {
        **own_sweep(sleep_s=0.02, hurry=str(hurry)),
        "ray": block,
        "checkpoint_every_s": 0.2,
        "retries": 3,
        "keep_checkpoints": "all",
    }
    with hpo.start("sweep", hpo.write(config), "--out", hpo.run, "--json") as driver:
        _wait_for_two_at_once(hpo.run, driver)
        raylets.lose_one()
        hurry.touch()
        out, err = driver.communicate()
    assert driver.returncode == 0, err
    assert "starts again" in err
    assert json.loads(out)["winner"]["lr"] == pytest.approx(0.01)
    assert {trial["state"] for trial in json.loads(out)["trials"]} == {"winner", "stopped"}
    logs = [read_log(log.parent)["step"] for log in (hpo.run / "trials").glob("*/log.csv")]
    assert all(np.array_equal(steps, np.arange(1, steps.size + 1)) for steps in logs)
    assert len(list((hpo.run / "trials").glob("trial-*/checkpoint-*"))) == 5  # keep_checkpoints: all
    assert list((hpo.folder / "ray-storage").glob("*/*"))


def test_a_cluster_that_does_not_answer_is_bad_input(hpo, own_sweep):
    config = {**own_sweep(), "ray": {"address": "127.0.0.1:1"}}
    code, out, err = hpo("sweep", hpo.write(config), "--out", hpo.run)
    assert (code, out) == (2, "")
    assert "ray.address: expected a Ray cluster that answers; found 127.0.0.1:1" in err.splitlines()[-1]
    assert not hpo.run.exists()


def _wait_for_two_at_once(run: Path, driver: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 180
    while True:
        logs = list((run / "trials").glob("*/log.csv"))
        running = [log for log in logs if log.stat().st_size > 1500 and not (log.parent / "outcome.json").exists()]
        if len(running) >= 2:
            return
        assert time.monotonic() < deadline, "no two trials ran at once"
        assert driver.poll() is None, driver.communicate()[1]
        time.sleep(0.05)
