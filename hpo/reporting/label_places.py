"""Where the names of points go in a chart: beside their points, but over no other name, no point and no edge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

FONT = 11
_WIDE = 0.58
"""Mean width of a letter of a sans-serif font, over its size."""
_POINT = 5.0
"""Half the side of the square that a point keeps free."""
_STEPS = (0.0, 13.0, -13.0, 26.0, -26.0, 39.0, -39.0)
"""How far a name may move up or down from its first place, nearest first."""


@dataclass(frozen=True)
class Box:
    """A rectangle in user units; y grows downwards."""

    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: Box) -> bool:
        """True if the two overlap."""
        across = self.left < other.right and other.left < self.right
        return across and self.top < other.bottom and other.top < self.bottom

    def holds(self, other: Box) -> bool:
        """True if ``other`` lies inside."""
        across = self.left <= other.left and other.right <= self.right
        return across and self.top <= other.top and other.bottom <= self.bottom


@dataclass(frozen=True)
class Place:
    """Where a name stands.

    Attributes
    ----------
    x, y : float
        One end of its baseline.
    anchor : str
        Which end that is (SVG's ``text-anchor``: start, end).
    point : tuple of float or None
        The point it was moved away from, to which a thin line should lead; None for a name beside its point.
    """

    x: float
    y: float
    anchor: str
    point: tuple[float, float] | None = None


def label_places(
    points: Sequence[tuple[float, float, str]], inside: Box, others: Sequence[Box] = (), lines: Sequence[Box] = ()
) -> list[tuple[Place, str]]:
    """Return the names of points with their places; a name that fits nowhere is left out.

    Parameters
    ----------
    points : sequence of (x, y, name)
        All points, which names keep free; an empty name is not shown.
    inside : Box
        Where names may be.
    others : sequence of Box
        What else they keep free.
    lines : sequence of Box
        What they keep free where they can.

    Notes
    -----
    Names are placed one by one, each at the first free of 14 places: right or left of its point, a little above it, then moved
    further up or down.
    """
    taken = [*others, *(Box(x - _POINT, y - _POINT, x + _POINT, y + _POINT) for x, y, _ in points)]
    found: list[tuple[Place, str]] = []
    for x, y, name in points:
        places = [
            Place(x + side * 7, y - 6 + step, anchor, (x, y) if step else None)
            for step in _STEPS
            for side, anchor in ((1, "start"), (-1, "end"))
        ]
        free = [one for one in places if name and _is_free(box_of(one, name), taken, inside)]
        clear = [one for one in free if _is_free(box_of(one, name), lines, inside)]
        place = next(iter([*clear, *free]), None)
        if place is not None:
            found.append((place, name))
            taken.append(box_of(place, name))
    return found


def box_of(place: Place, text: str) -> Box:
    """Return the rectangle of a text, by the mean width of letters."""
    width = _WIDE * FONT * len(text)
    left = place.x if place.anchor == "start" else place.x - width
    return Box(left, place.y - 0.8 * FONT, left + width, place.y + 0.25 * FONT)


def _is_free(box: Box, taken: Sequence[Box], inside: Box) -> bool:
    return inside.holds(box) and not any(box.meets(other) for other in taken)
