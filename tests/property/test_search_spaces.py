import math

from hypothesis import given
from hypothesis import strategies as st

from search_spaces import RunContext, derive, load_space

NUMBERS = st.floats(1e-6, 1e6)


@st.composite
def ranged(draw):
    low, high = sorted((draw(NUMBERS), draw(NUMBERS)))
    if draw(st.booleans()):
        return {"type": "float", "low": low, "high": high, "log": draw(st.booleans()), "points": draw(st.integers(1, 4))}
    low, high = max(1, int(low)), max(1, int(high))
    return {"type": "int", "low": low, "high": high, "log": draw(st.booleans()), "points": draw(st.integers(1, 4))}


@st.composite
def spaces(draw):
    parameters = {
        "kind": {"type": "categorical", "choices": draw(st.lists(st.integers(0, 9), min_size=1, max_size=3, unique=True))}
    }
    for k in range(draw(st.integers(0, 3))):
        one = draw(ranged())
        if draw(st.booleans()):
            one["when"] = {"kind": parameters["kind"]["choices"][0]}
        parameters[f"p{k}"] = one
    return load_space({"parameters": parameters})


@given(spaces(), st.integers(1, 12), st.integers(0, 1000))
def test_candidates_are_distinct_repeatable_and_inside(space, n, seed):
    if space.size is not None:
        n = min(n, space.size)
    points = space.candidates(n, seed)
    assert len(points) == n
    assert len({str(point) for point in points}) == n
    assert all(space.checked(point) == point for point in points)
    assert points == space.candidates(n, seed)


@given(spaces())
def test_grid_points_are_distinct_and_inside(space):
    grid = space.grid()
    assert len({str(point) for point in grid}) == len(grid)
    assert all(space.checked(point) == point for point in grid)
    assert space.size is None or len(grid) <= space.size


@given(
    lr=st.floats(1e-4, 1.0),
    tau=st.floats(0.01, 3.0),
    batch=st.integers(1, 256),
    tpp=st.floats(1.0, 200.0),
    n_params=st.floats(1e5, 1e9),
)
def test_every_derived_run_has_the_controls_asked_for(lr, tau, batch, tpp, n_params):
    run = RunContext(n_params=n_params, n_tokens=1.0, seq_len=64, batch_sequences=1)
    point = {"lr": lr, "tau": tau, "batch_sequences": batch, "tpp": tpp}
    steps = max(1, round(tpp * n_params / (batch * 64)))
    if tau * steps < 1:
        return
    got = derive(point, run)
    assert got["n_steps"] == steps
    assert math.isclose(1 / (got["lr"] * got["weight_decay"] * got["n_steps"]), tau, rel_tol=1e-9)
