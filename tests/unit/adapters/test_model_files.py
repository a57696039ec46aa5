"""The model as a file."""

from __future__ import annotations

import json

import numpy as np
import pytest

from hpo.adapters.model_files import read_model, write_model
from hpo.core.curve import Curve
from hpo.core.model import SCHEMA, CollapseModel


def _curve(run_id: str, final: float, until: int = 200) -> Curve:
    steps = np.arange(1, until + 1)
    values = final * (1 + 0.3 * (1 - steps / 200) ** 2)
    return Curve.from_points(steps, values, horizon=200, run_id=run_id, family="toy")


def test_a_model_read_back_forecasts_the_same(tmp_path):
    model = CollapseModel.fit([_curve(f"r{k}", 2 + 0.1 * k) for k in range(4)])
    write_model(tmp_path / "model.json", model)
    prefix = _curve("target", 1.7, until=60)
    assert read_model(tmp_path / "model.json").forecast(prefix) == model.forecast(prefix)


def test_a_newer_schema_is_refused_by_name(tmp_path):
    path = tmp_path / "model.json"
    path.write_text(json.dumps({"schema": SCHEMA + 1, "references": [], "settings": {}}))
    with pytest.raises(ValueError, match=f"model.json: .*schema {SCHEMA + 1}.*upgrade"):
        read_model(path)


@pytest.mark.parametrize("text", ["", "[]", "not json", '{"schema": 1}', '{"schema": 1, "references": [{}], "settings": {}}'])
def test_what_is_not_a_model_is_refused_in_one_line(tmp_path, text):
    path = tmp_path / "model.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"model\.json") as caught:
        read_model(path)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"nothing\.json: expected a model file"):
        read_model(tmp_path / "nothing.json")
