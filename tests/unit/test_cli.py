"""The command line itself, and fit and forecast on small files."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

T = 400


@pytest.fixture
def curves(tmp_path):
    """Write a file of five runs with one normalised curve, and a file with one more of them."""

    def rows(run_id: str, final: float, seed: int) -> list[str]:
        steps = np.arange(1, T + 1)
        noise = 1 + 0.002 * np.random.default_rng(seed).standard_normal(T)
        values = final * (1 + 0.4 * (1 - steps / T) ** 1.5) * noise
        return [f"{run_id},{step},{T},{value:.6f}" for step, value in zip(steps, values, strict=True)]

    header = "run_id,step,total_steps,train_loss"
    references = [row for k in range(5) for row in rows(f"r{k}", 2 + 0.1 * k, k)]
    (tmp_path / "references.csv").write_text("\n".join([header, *references]) + "\n")
    (tmp_path / "target.csv").write_text("\n".join([header, *rows("target", 1.9, 9)]) + "\n")
    return tmp_path


def test_fit_then_forecast_says_what_the_run_will_reach(hpo, curves):
    code, out, _ = hpo("fit", curves / "references.csv", "-o", curves / "model.json")
    assert code == 0
    assert "5 references" in out
    code, out, err = hpo("forecast", curves / "target.csv", "--model", curves / "model.json", "--at", 0.2, "--json")
    said = json.loads(out)
    assert (code, err) == (0, "")
    assert {"final_loss", "sd", "lower", "upper", "status", "family", "n_references", "misfit"} <= set(said)
    assert said["status"] == "ok"
    assert said["n_references"] == 5
    assert said["fraction"] == pytest.approx(0.2)
    assert said["lower"] < said["actual"] < said["upper"]
    assert abs(said["error_pct"]) < 2


def test_logs_that_do_not_tell_their_length_are_read_with_total(hpo, curves):
    steps = range(1, 1001)
    for k in (1.0, 1.1, 1.2):
        rows = [f"{s},{k * (2 + (s / 1000) ** -0.3)}" for s in steps]
        (curves / f"plain{k}.csv").write_text("step,train_loss\n" + "\n".join(rows) + "\n")
    (curves / "young.csv").write_text("step,train_loss\n" + "\n".join(f"{s},{2 + (s / 1000) ** -0.3}" for s in range(1, 301)))
    assert hpo("fit", *(curves / f"plain{k}.csv" for k in (1.0, 1.1, 1.2)), "-o", curves / "m.json")[0] == 2
    assert hpo("fit", *(curves / f"plain{k}.csv" for k in (1.0, 1.1, 1.2)), "--total", "last", "-o", curves / "m.json")[0] == 0
    code, out, _ = hpo("forecast", curves / "young.csv", "--model", curves / "m.json", "--total", 1000, "--json")
    assert code == 0
    assert json.loads(out)["final_loss"] == pytest.approx(3.0, rel=0.01)


def test_runs_that_teach_nothing_are_named_with_the_reason(hpo, curves):
    (curves / "young.csv").write_text(
        "step,train_loss,total_steps\n" + "\n".join(f"{k},{3 - k / 100},1000" for k in range(1, 50))
    )
    code, _, err = hpo("fit", curves / "references.csv", curves / "young.csv", "-o", curves / "m.json")
    assert code == 0
    assert "young: ends at 5% of its length" in err


@pytest.mark.parametrize("total", ["0", "-5", "soon", "nan"])
def test_an_impossible_total_is_refused(hpo, curves, total):
    code, _, err = hpo("fit", curves / "references.csv", "--total", total, "-o", curves / "m.json")
    assert code == 2
    assert "--total: expected a number of steps above 0, or last" in err
    assert not (curves / "m.json").exists()


def test_a_run_is_not_forecast_from_its_own_end(hpo, curves):
    hpo("fit", curves / "references.csv", "-o", curves / "model.json")
    name = json.loads((curves / "model.json").read_text())["references"][0]["run_id"]
    code, out, err = hpo(
        "forecast", curves / "references.csv", "--run", name, "--model", curves / "model.json", "--at", 0.2, "--json"
    )
    n_all = len(json.loads((curves / "model.json").read_text())["references"])
    assert code == 0
    assert json.loads(out)["n_references"] < n_all
    assert f"run {name} is one of the model's references; it was left out" in err


def test_a_forecast_reads_as_a_sentence(hpo, curves):
    hpo("fit", curves / "references.csv", "-o", curves / "model.json")
    code, out, _ = hpo("forecast", curves / "target.csv", "--model", curves / "model.json", "--at", 0.3)
    assert code == 0
    assert out.startswith("target: final loss 1.")


def test_a_forecast_that_abstains_says_why_and_gives_no_number(hpo, curves):
    hpo("fit", curves / "references.csv", "-o", curves / "model.json")
    (curves / "plain.csv").write_text("step,train_loss\n" + "\n".join(f"{k},{3 - k / 100}" for k in range(1, 50)) + "\n")
    code, out, _ = hpo("forecast", curves / "plain.csv", "--model", curves / "model.json", "--json")
    said = json.loads(out)
    assert code == 0
    assert said["status"] == "unknown_horizon"
    assert said["final_loss"] is None


def _with_columns(path, **constants):
    header, *rows = path.read_text().splitlines()
    cells = "".join(f",{value}" for value in constants.values())
    lines = [",".join([header, *constants]), *(row + cells for row in rows)]
    made = path.with_name("more-" + path.name)
    made.write_text("\n".join(lines) + "\n")
    return made


@pytest.mark.parametrize(
    ("theirs", "words"), [({}, "do not say their recipe"), ({"n_params": 1e6}, "do not name their schedule")]
)
def test_what_the_references_do_not_say_contradicts_nothing(hpo, curves, theirs, words):
    references = _with_columns(curves / "references.csv", **theirs) if theirs else curves / "references.csv"
    hpo("fit", references, "-o", curves / "model.json")
    target = _with_columns(curves / "target.csv", n_params=2e6, schedule="linear")
    code, out, err = hpo("forecast", target, "--model", curves / "model.json", "--at", 0.3, "--json")
    said = json.loads(out)
    assert (code, said["status"]) == (0, "ok")
    assert words in said["reason"]
    assert words in err
    code, _, err = hpo("monitor", target, "--model", curves / "model.json")
    assert code == 0
    assert words in err


def _with_rates(path, seen=1.0):
    """Return a log of a linear decay under a name that says nothing, as far as it has been written."""
    header, *rows = path.read_text().splitlines()
    kept = [(row, int(row.split(",")[1])) for row in rows if int(row.split(",")[1]) <= seen * T]
    lines = [f"{header},lr_at_step,n_params,schedule", *(f"{row},{1e-3 * (1 - step / T)},1e6,mine" for row, step in kept)]
    made = path.with_name("rates-" + path.name)
    made.write_text("\n".join(lines) + "\n")
    return made


def test_a_running_run_follows_what_runs_of_its_schedules_name_recorded(hpo, curves):
    hpo("fit", _with_rates(curves / "references.csv"), "-o", curves / "model.json")
    code, out, _ = hpo("forecast", _with_rates(curves / "target.csv", seen=0.3), "--model", curves / "model.json", "--json")
    said = json.loads(out)
    assert (code, said["status"]) == (0, "ok")
    assert said["final_loss"] == pytest.approx(1.9, rel=0.01)


def test_a_run_without_a_family_is_told_what_it_is_and_what_the_model_has(hpo, curves):
    hpo("fit", _with_columns(curves / "references.csv", schedule="linear", family="ours"), "-o", curves / "model.json")
    target = _with_columns(curves / "target.csv", schedule="constant", family="yours")
    _, out, _ = hpo("forecast", target, "--model", curves / "model.json", "--at", 0.3)
    assert "no_family" in out
    assert "the run: yours · constant · train_loss; the model: ours · linear · train_loss" in out


def test_a_run_whose_schedule_no_reference_has_is_forecast_from_what_schedules_have_in_common(hpo, curves):
    hpo("fit", _with_columns(curves / "references.csv", schedule="linear"), "-o", curves / "model.json")
    target = _with_columns(curves / "target.csv", schedule="constant")
    _, out, _ = hpo("forecast", target, "--model", curves / "model.json", "--at", 0.3)
    assert "5 references of all schedules · train_loss" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("fit", "nowhere.csv", "-o", "m.json"), "nowhere.csv"),
        (("fit", "target.csv"), "output"),
        (("fit", "plain.csv", "-o", "m.json"), "expected at least one complete run"),
        (("forecast", "target.csv", "--model", "nowhere.json"), "nowhere.json: expected a model file"),
        (("forecast", "references.csv", "--model", "model.json"), "expected one run (choose it by --run ID); found 5"),
        (("forecast", "references.csv", "--model", "model.json", "--run", "r9"), "r9"),
        (("forecast", "target.csv", "--model", "model.json", "--at", "1.5"), "--at: expected a fraction"),
        (("forecast", "plain.csv", "--model", "model.json", "--at", "0.5"), "only where its whole length is known"),
        (("sweep",), "either CONFIG or --resume RUN; found neither"),
        (("sweep", "x.yaml", "--resume", "y"), "found both"),
        (("sweep", "x.yaml", "--retry-failed"), "--retry-failed: expected --resume RUN with it; found a new sweep"),
        (("sweep", "--resume", "nowhere"), "--resume: expected the folder of a run"),
        (("sweep", "--resume", "y", "--set", "a=1"), "--set: expected no such option with --resume"),
        (("sweep", "--resume", "y", "--log-to", "wandb"), "--log-to: expected no such option with --resume"),
        (("sweep", "x.yaml", "--frobnicate"), "frobnicate"),
        (("frobnicate",), "frobnicate"),
    ],
)
def test_wrong_input_is_one_line_and_exit_code_2(hpo, curves, monkeypatch, arguments, message):
    monkeypatch.chdir(curves)
    hpo("fit", "references.csv", "-o", "model.json")
    (curves / "plain.csv").write_text("step,train_loss\n" + "\n".join(f"{k},{3 - k / 100}" for k in range(1, 50)) + "\n")
    code, out, err = hpo(*arguments)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert message in err


def test_help_and_import_load_nothing_heavy():
    script = (
        "import sys, hpo\n"
        "from hpo.cli import main\n"
        "sys.argv = ['hpo', '--help']\n"
        "try: main()\n"
        "except SystemExit as stopped: assert not stopped.code\n"
        "print(sorted({'torch', 'ray', 'optuna', 'pandas', 'scipy'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"
    assert "sweep" in done.stdout


@pytest.mark.parametrize(
    ("name", "package", "extra"),
    [
        ("hpo.CollapseScheduler", "ray", "sweep"),
        ("hpo.CollapseSearch", "ray", "sweep"),
        ("proxies.parameterise", "torch", "sweep"),
    ],
)
def test_what_needs_more_than_the_core_names_the_extra(name, package, extra):
    module, _, attribute = name.partition(".")
    script = f"import sys; sys.modules['{package}'] = None\nimport {module}\n"
    script += f"try: {module}.{attribute}\nexcept ImportError as error: print(error)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == f"{name} needs {package}, which is not installed: pip install 'collapse-hpo[{extra}]'\n"


@pytest.mark.parametrize("option", ["0", "1", "-2"])
def test_a_tie_is_settled_by_two_seeds_at_least(hpo, option):
    code, out, err = hpo("sweep", "x.yaml", "--settle", option)
    assert (code, out) == (2, "")
    assert err == f"hpo: --settle: expected at least 2 seeds each (one cannot settle a tie); found {option}\n"


@pytest.mark.parametrize("command", ["sweep", "fit", "forecast"])
def test_every_command_has_help_with_an_example(hpo, command):
    code, out, _ = hpo(command, "--help")
    assert code == 0
    assert f"Example: hpo {command}" in out


def test_the_version_is_shown(hpo, monkeypatch):
    monkeypatch.setattr("importlib.metadata.version", lambda name: "1.2.3")
    assert hpo("--version") == (0, "hpo 1.2.3\n", "")
