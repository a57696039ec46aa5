"""``python -m proxies coordinate-check``: verdicts, JSON, figure, and refusals in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from proxies.__main__ import app

QUICK = ["coordinate-check", "--widths", "32,64,128", "--depths", "2,4,8,16", "--steps", "8"]
TWO_SIZES = ["coordinate-check", "--widths", "32,64", "--depths", "2,4"]


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, arguments)
    return result.exit_code, result.stdout, result.stderr


@pytest.mark.parametrize("more", [(), ("--tied", "--bias")])
def test_completep_is_flat(more: tuple[str, ...]) -> None:
    code, out, _ = run(*QUICK, "--parameterisation", "completep", "--json", *more)
    found = json.loads(out)
    assert (code, found["holds"]) == (0, True)
    assert [ladder["flat"] for ladder in found["ladders"]] == [True, True]


def test_sp_is_flat_in_neither() -> None:
    code, out, _ = run(*QUICK, "--parameterisation", "sp", "--seeds", "3", "--json")
    assert code == 0
    assert [ladder["flat"] for ladder in json.loads(out)["ladders"]] == [False, False]


def test_json_has_one_scale_an_update_and_size() -> None:
    _, out, _ = run("coordinate-check", "--widths", "16,32", "--depths", "1,2", "--steps", "2", "--seeds", "2", "--json")
    ladder = json.loads(out)["ladders"][0]
    assert [len(values) for values in ladder["scales"]["stream"]] == [3, 3]
    assert set(ladder["exponents"]) == set(ladder["margins"]) == {"stream", "stream_change", "logits", "logits_change"}


def test_two_small_sizes_raise_no_false_alarm() -> None:
    """The exponents of single seeds are beyond 0.25 for three of four here."""
    code, out, _ = run(*TWO_SIZES, "--parameterisation", "completep,sp", "--json")
    ladders = {(ladder["parameterisation"], ladder["axis"]): ladder["flat"] for ladder in json.loads(out)["ladders"]}
    assert code == 0
    assert ladders["completep", "width"] is ladders["completep", "depth"] is None
    assert ladders["sp", "width"] is False
    assert "cannot be told" in run(*TWO_SIZES, "--parameterisation", "completep")[1]


def test_a_broken_promise_is_named_and_exits_with_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxies.coordinate_ladder.PROMISED_FLAT", {"sp": ("width",)})
    code, out, _ = run(*QUICK, "--parameterisation", "sp", "--seeds", "3")
    assert code == 1
    assert "PROMISED FLAT" in out


def test_the_figure_has_a_panel_for_each_axis_and_quantity(tmp_path: Path) -> None:
    path = tmp_path / "check.svg"
    code, _, _ = run(
        "coordinate-check", "--widths", "16,32", "--depths", "1,2", "--steps", "1", "--seeds", "2", "--figure", str(path)
    )
    text = path.read_text(encoding="utf-8")
    assert code in (0, 1)
    assert text.count("<svg ") == 5
    assert "logits against depth, after 1 updates" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--widths", "24,40"), "model.head_dim must divide model.width; found 16 and 24"),
        (("--widths", "16"), "widths must hold at least two sizes; found 16"),
        (("--depths", "2,x"), "--depths must be whole numbers, comma-separated; found '2,x'"),
        (("--parameterisation", "ntk"), "parameterisation must be among sp, mup, completep; found ntk"),
        (("--seeds", "1"), "seeds must be at least 2, as they tell the noise; found 1"),
        (("--steps", "0"), "steps must be at least 1; found 0"),
        (("--lr", "-1"), "training.lr must be a finite number above 0; found -1.0"),
        (("--figure", "check.png"), "--figure: expected a name that ends in .svg; found check.png"),
    ],
)
def test_bad_input_is_one_line_and_exits_with_2(arguments: tuple[str, ...], message: str) -> None:
    code, out, err = run("coordinate-check", *arguments)
    assert (code, out) == (2, "")
    assert err == f"error: {message}\n"


def test_a_figure_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    path = str(tmp_path / "file" / "x.svg")
    code, _, err = run(
        "coordinate-check", "--widths", "16,32", "--depths", "1,2", "--steps", "1", "--seeds", "2", "--figure", path
    )
    assert code == 2
    assert err.startswith("error: --figure: expected a file that can be written")
