import pytest

from hpo.adapters.schedule_names import parse_schedule, schedule_text
from hpo.core.schedules import recorded_schedule, schedule, unknown_schedule


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("constant", schedule("constant")),
        ("constant_72000", schedule("constant")),
        ("cosine_to_0.1x", schedule("cosine", final_ratio=0.1)),
        ("linear", schedule("linear")),
        ("wsd_linear_cool0.2", schedule("wsd", cooldown_fraction=0.2, shape="linear")),
        ("wsd_sqrt_cool0.2", schedule("wsd", cooldown_fraction=0.2, shape="sqrt")),
        ("step(factor=0.1, milestones=(0.5, 0.8))", schedule("step", milestones=(0.5, 0.8), factor=0.1)),
        ('{"name": "cosine", "parameters": {"final_ratio": 0.2}}', schedule("cosine", final_ratio=0.2)),
    ],
)
def test_recorded_names(text, expected):
    assert parse_schedule(text) == expected


def test_an_absolute_final_rate_needs_the_peak():
    assert parse_schedule("cosine_to_1e-07") is None
    assert parse_schedule("cosine_to_1e-07", lr=1e-3) == schedule("cosine", final_ratio=1e-7 / 1e-3)


@pytest.mark.parametrize(
    "text",
    [
        "wsd",
        "step",
        "wsdld_20000_24000",
        "per submission (mostly warmup)",
        "",
        "{",
        "{}",
        "cosine(final_ratio=9)",
        "wsd(shape=x)",
        "constant(__import__('os').abort())",
        "cosine(final_ratio=(lambda: 1)())",
        "linear(" + "(" * 900 + ")",
    ],
)
def test_what_does_not_fix_a_schedule_is_unknown(text):
    assert parse_schedule(text) is None


@pytest.mark.parametrize(
    "made",
    [
        schedule("wsd"),
        schedule("wsd", cooldown_fraction=1 / 3, shape="cosine", final_ratio=0.01),
        schedule("step", milestones=(0.5,)),
        schedule("exponential"),
        schedule("cosine"),
        recorded_schedule([0, 0.1, 1], [0.1, 0.7, 0.3]),
        unknown_schedule("linear"),
        unknown_schedule(""),
        unknown_schedule("theirs"),
    ],
    ids=str,
)
def test_text_parses_back_exactly(made):
    assert parse_schedule(schedule_text(made)) == made
