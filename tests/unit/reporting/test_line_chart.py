"""Charts: axes of powers of ten, points with names."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import numpy as np
import pytest

from hpo.reporting.line_chart import Line, line_chart

SVG = "{http://www.w3.org/2000/svg}"


def texts(chart):
    return [node.text for node in ET.fromstring(chart).iter(f"{SVG}text")]


@pytest.mark.parametrize(
    ("low", "high", "shown"),
    [
        (1e18, 1e22, ["1e+18", "1e+19", "1e+20", "1e+21", "1e+22"]),
        (1.0, 20.0, ["1", "2", "5", "10", "20"]),
        (2.8, 3.6, ["2.8", "3", "3.2", "3.4", "3.6"]),
    ],
)
def test_ticks_of_a_power_axis_are_round_values(low, high, shown):
    chart = line_chart([Line("", np.log10([low, high]), [30.0, 31.0])], title="", x_label="", y_label="", powers="x")
    assert [text for text in texts(chart) if text in shown] == shown


def test_points_are_drawn_one_by_one_with_their_names():
    chart = line_chart([Line("", [0, 1], [0, 1], points=True, names=["a<b", "c"])], title="", x_label="", y_label="")
    assert {"a<b", "c"} <= set(texts(chart))
    assert len(list(ET.fromstring(chart).iter(f"{SVG}circle"))) == 2
