"""Answers that are kept."""

from hpo.core.remembered import Remembered


def test_an_answer_is_made_once_and_the_oldest_makes_room():
    made = []
    known = Remembered(2)
    for key in ("a", "b", "a", "c", "b", "a"):
        assert known.get(key, lambda key=key: made.append(key) or key.upper()) == key.upper()
    assert made == ["a", "b", "c", "a"]
