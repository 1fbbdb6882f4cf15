"""Random models and logs that tests share, and scripts as modules; imported as `support`."""

import importlib.util
from pathlib import Path

import numpy as np
from hypothesis import strategies as st

from latentmdp import testing
from latentmdp.logs import Trajectories


def script(path):
    """A script of this repository, outside the package, as a module."""
    file = Path(__file__).parents[1] / path
    spec = importlib.util.spec_from_file_location(file.stem, file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def towards(belief, context, x):
    """(1 - x) b + x e_m: the belief this far on the way to certainty of a context."""
    return (1.0 - x) * belief + x * np.eye(belief.size)[context]


def random_model(seed=0, M=3, S=4, A=2, Z=2, horizon=5, next_state_rewards=False, **changes):
    """A dense random model with Z rewards from 0 to 1; `changes` replaces parts of it."""
    model = testing.random_model(
        seed,
        contexts=M,
        states=S,
        actions=A,
        horizon=horizon,
        reward_values=tuple(np.arange(Z) / max(1, Z - 1)),
        reward_model="transition" if next_state_rewards else "state-action",
    )
    return model.replace(**changes)


@st.composite
def models(draw):
    """Models of every form: sizes, reward forms, bonuses, names, discount."""
    M, S, A, Z = (draw(st.integers(1, n)) for n in (3, 4, 3, 3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    changes = {"discount": draw(st.sampled_from([1.0, 0.9, 1 / 3]))}
    if draw(st.booleans()):
        changes["bonus"] = rng.normal(size=(M, S, A))
    if draw(st.booleans()):
        changes["initial_bonus"] = rng.normal(size=M)
    if draw(st.booleans()):
        changes["context_names"] = [f"context {m} é" for m in range(M)]
    return random_model(rng, M, S, A, Z, draw(st.integers(1, 9)), draw(st.booleans()), **changes)


def gap_model(seed=0, **changes):
    """A table with a forbidden action, a terminal state and no end."""
    model = random_model(seed, M=2, S=3, A=2, next_state_rewards=True)
    model = model.replace(
        allowed=[[True, False], [True, True], [False, False]], horizon=None, discount=0.9
    )
    table = type(model).from_outcomes(
        *model.outcomes,
        n_states=3,
        initial=model.initial,
        weights=model.weights,
        allowed=model.allowed,
        horizon=None,
        discount=0.9,
    )
    return table.replace(**changes)


@st.composite
def batches(draw, min_length=0):
    """Logs with episodes of any length, contexts, counts and reward values or none."""
    lengths = draw(st.lists(st.integers(min_length, 5), max_size=6))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    N, total = len(lengths), sum(lengths)
    return Trajectories(
        rng.integers(0, 5, total + N),
        rng.integers(0, 3, total),
        rng.integers(0, 3, total),
        np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        contexts=rng.integers(0, 3, N) if draw(st.booleans()) else None,
        counts=rng.integers(1, 9, N) if draw(st.booleans()) else None,
        n_states=draw(st.sampled_from([None, 7])),
        reward_values=draw(st.sampled_from([None, (0.0, 0.1, 1.0), (2.0, -1.5, 0.25)])),
    )
