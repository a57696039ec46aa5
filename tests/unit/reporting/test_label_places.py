"""Where the names of points go in a chart."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpo.reporting.label_places import Box, box_of, label_places

INSIDE = Box(0, 0, 400, 200)
NAMED = st.lists(st.tuples(st.floats(0, 400), st.floats(0, 200), st.sampled_from(["a", "ladder-w36-seed0", ""])), max_size=12)


@given(NAMED)
def test_no_name_covers_another_or_leaves_the_chart(points):
    boxes = [box_of(place, name) for place, name in label_places(points, INSIDE)]
    assert not any(one.meets(other) for one, other in combinations(boxes, 2))
    assert all(INSIDE.holds(box) for box in boxes)


def test_a_name_stands_right_of_its_point_and_left_of_it_at_the_edge():
    (first, _), (second, _) = label_places([(50, 100, "one"), (395, 100, "two")], INSIDE)
    assert (first.anchor, second.anchor) == ("start", "end")


@pytest.mark.parametrize("n", [2, 5])
def test_points_at_one_place_have_all_their_names(n):
    assert len(label_places([(200, 100, f"name {k}") for k in range(n)], INSIDE)) == n


def test_a_name_moved_away_says_which_point_it_is_of():
    first, second, third = (place for place, _ in label_places([(200, 100, f"name {k}") for k in range(3)], INSIDE))
    assert (first.point, second.point, third.point) == (None, None, (200, 100))


def test_a_name_that_fits_nowhere_is_left_out():
    assert label_places([(200, 100, "long" * 50)], INSIDE) == []


def test_a_name_stays_clear_of_a_line_where_it_can():
    line = [Box(200 + k, 85, 202 + k, 95) for k in range(0, 100, 2)]
    (place, name), *_ = label_places([(200, 100, "name")], INSIDE, (), line)
    assert not any(box_of(place, name).meets(box) for box in line)
