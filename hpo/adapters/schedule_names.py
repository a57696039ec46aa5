"""Learning-rate schedules as curve files name them, turned into :class:`~hpo.core.schedules.Schedule`.

Published logs call one schedule many things (``cosine_to_0.1x``, ``wsd_sqrt_cool0.2``, ``constant_72000``). A name is
understood only if it fixes the shape: a bare ``wsd`` says nothing of its cooldown and stays unknown.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable

from hpo.core.schedules import SHAPES, Schedule, schedule, schedule_from_dict

_NUMBER = r"(\d+\.?\d*(?:e[-+]?\d+)?|\.\d+(?:e[-+]?\d+)?)"
_DECAY_TO_RATIO = re.compile(rf"(cosine|linear)_to_{_NUMBER}x")
_DECAY_TO_LR = re.compile(rf"(cosine|linear)_to_{_NUMBER}")
_WSD = re.compile(rf"wsd_(linear|sqrt|cosine)_cool{_NUMBER}")
_CONSTANT = re.compile(r"constant(_\d+)?")
_OWN_FORM = re.compile(r"([a-z]+)\((.*)\)")
_WHOLE_NAMES = {"linear": "linear", "d2z": "linear", "cosine": "cosine"}
_LONGEST_NAME = 1_000


def parse_schedule(text: str, lr: float | None = None) -> Schedule | None:
    """Return the schedule that ``text`` names, or None if the text does not fix one.

    Parameters
    ----------
    text : str
        A recorded name, the ``str()`` of a :class:`Schedule`, or the JSON of its ``to_dict()``.
    lr : float, optional
        Peak learning rate, needed for names that give an absolute final rate (``cosine_to_1e-07``).
    """
    text = text.strip()
    try:
        if text.startswith("{"):
            return schedule_from_dict(json.loads(text))
        return _parse_name(text, lr)
    except (ValueError, TypeError, SyntaxError, AttributeError, KeyError):
        return None


def schedule_text(value: Schedule) -> str:
    """Return a text that :func:`parse_schedule` turns back into ``value`` exactly: its name, or JSON where that loses."""
    name = str(value)
    return name if parse_schedule(name) == value else json.dumps(value.to_dict())


def _parse_name(text: str, lr: float | None) -> Schedule | None:
    if text in _WHOLE_NAMES:
        return schedule(_WHOLE_NAMES[text])
    for pattern, build in _PATTERNS:
        if found := pattern.fullmatch(text):
            return build(found, lr)
    return None


def _decay_to_ratio(found: re.Match[str], _lr: float | None) -> Schedule:
    return schedule(found[1], final_ratio=float(found[2]))


def _decay_to_lr(found: re.Match[str], lr: float | None) -> Schedule | None:
    if float(found[2]) == 0.0:
        return schedule(found[1])
    return None if lr is None else schedule(found[1], final_ratio=float(found[2]) / lr)


def _wsd(found: re.Match[str], _lr: float | None) -> Schedule:
    return schedule("wsd", cooldown_fraction=float(found[2]), shape=found[1])


def _constant(_found: re.Match[str], _lr: float | None) -> Schedule:
    return schedule("constant")


def _own_form(found: re.Match[str], _lr: float | None) -> Schedule | None:
    """Read ``name(key=value, …)``; the values are literals, nothing is evaluated."""
    if found[1] not in SHAPES or len(found[0]) > _LONGEST_NAME:
        return None
    call = ast.parse(found[0], mode="eval").body
    if not isinstance(call, ast.Call) or call.args:
        return None
    # Schedule.__str__ leaves text values unquoted (shape=sqrt)
    values = {k.arg or "": k.value.id if isinstance(k.value, ast.Name) else ast.literal_eval(k.value) for k in call.keywords}
    return schedule(found[1], **values)


_PATTERNS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str], float | None], Schedule | None]], ...] = (
    (_DECAY_TO_RATIO, _decay_to_ratio),
    (_DECAY_TO_LR, _decay_to_lr),
    (_WSD, _wsd),
    (_CONSTANT, _constant),
    (_OWN_FORM, _own_form),
)
