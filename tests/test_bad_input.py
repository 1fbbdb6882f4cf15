"""Bad input of every kind: the type of the error, and that its message names the culprit."""

import json

import numpy as np
import pytest
from support import random_model

import latentmdp as lm
from latentmdp.errors import FormatError, LatentMDPError, ModelError, TrajectoryError

M, S, A, H = 2, 3, 2, 4


def transitions(**cells):
    """Uniform transitions with one entry replaced."""
    T = np.full((M, S, A, S), 1 / S)
    for value in cells.values():
        T[1, 2, 0, 1] = value
    return T


def build(**changes):
    arguments = {"transitions": transitions(), "rewards": np.full((M, S, A), 0.5), "horizon": H}
    return lm.LatentMDP(**{**arguments, **changes})


def means(value):
    R = np.full((M, S, A), 0.5)
    R[1, 0, 1] = value
    return R


def rows(value):
    R = np.full((M, S, A, 2), 0.5)
    R[0, 2, 1, 0] = value
    return R


MODELS = {
    "nan": (
        {"transitions": transitions(x=np.nan)},
        ModelError,
        r"transitions\[1, 2, 0, 1\] is nan",
    ),
    "infinite": ({"rewards": means(np.inf)}, ModelError, r"rewards\[1, 0, 1\] is inf"),
    "negative": (
        {"transitions": transitions(x=-0.1)},
        ModelError,
        r"transitions\[1, 2, 0, 1\] is -0.1",
    ),
    "above one": (
        {"transitions": transitions(x=1.5)},
        ModelError,
        r"\[1, 2, 0, 1\] is 1.5.*\[0, 1\]",
    ),
    "row sum": (
        {"transitions": transitions(x=0.5)},
        ModelError,
        r"context 1, state 2, action 0 sums to 1.16666666667, off by \+0.167",
    ),
    "row sum just beyond": (
        {"transitions": transitions(x=1 / 3 + 1e-8)},
        ModelError,
        r"off by \+1e-08; must sum to 1 within 1e-09 \(1 of 12 rows",
    ),
    "not four axes": (
        {"transitions": np.ones((M, S, S))},
        ModelError,
        r"\(M, S, A, S\), got \(2, 3, 3\)",
    ),
    "not square": ({"transitions": np.ones((M, S, A, 4))}, ModelError, r"got \(2, 3, 2, 4\)"),
    "ragged": (
        {"transitions": [[1.0], [0.5, 0.5]]},
        ModelError,
        "transitions must be a rectangular",
    ),
    "empty": ({"transitions": np.ones((0, S, A, S))}, ModelError, "transitions must not be empty"),
    "text": ({"transitions": [["a"]]}, TypeError, "transitions must hold real numbers, got dtype"),
    "complex": ({"rewards": means(0.5) + 0j}, TypeError, "rewards must hold real numbers"),
    "objects": ({"rewards": [None]}, TypeError, "rewards must hold real numbers, got dtype object"),
    "rewards' shape": (
        {"rewards": np.ones((M, S))},
        ModelError,
        r"rewards must have shape .*got \(2, 3\)",
    ),
    "mean above one": (
        {"rewards": means(1.5)},
        ModelError,
        r"rewards\[1, 0, 1\] is 1.5: a Bernoulli",
    ),
    "reward row": (
        {"rewards": rows(0.7)},
        ModelError,
        "rewards: the row of context 0, state 2, action 1",
    ),
    "means of what": (
        {"reward_values": (0.0, 5.0)},
        ModelError,
        r"Bernoulli means and need reward_values \(0, 1\), got \[0.0, 5.0\]",
    ),
    "values twice": ({"reward_values": (1.0, 1.0)}, ModelError, "reward_values must be distinct"),
    "no values": ({"reward_values": ()}, ModelError, "reward_values must be a non-empty"),
    "horizon 0": ({"horizon": 0}, ModelError, "horizon must be at least 1, got 0"),
    "horizon 2.5": ({"horizon": 2.5}, TypeError, "horizon must be an integer, got float"),
    "horizon True": ({"horizon": True}, TypeError, "horizon must be an integer, got bool"),
    "discount 0": ({"discount": 0.0}, ModelError, r"discount must lie in \(0, 1\], got 0.0"),
    "discount nan": ({"discount": np.nan}, ModelError, "discount must lie"),
    "discount text": ({"discount": "1"}, TypeError, "discount must be a number, got str"),
    "weights' sum": ({"weights": [0.5, 0.6]}, ModelError, r"weights: sums to 1.1, off by \+0.1"),
    "weights' sign": ({"weights": [1.5, -0.5]}, ModelError, r"weights\[0\] is 1.5"),
    "weights' shape": (
        {"weights": [1.0]},
        ModelError,
        r"weights must have shape \(2,\), got \(1,\)",
    ),
    "initial sum": ({"initial": [0.5, 0.5, 0.5]}, ModelError, "initial: the row of context 0"),
    "initial shape": (
        {"initial": [[1.0]]},
        ModelError,
        r"initial must have shape \(3,\) or \(2, 3\)",
    ),
    "initial state": ({"initial": 3}, ModelError, r"initial state must lie in \[0, 3\), got 3"),
    "bonus shape": ({"bonus": np.ones(3)}, ModelError, r"bonus must have shape \(2, 3, 2\)"),
    "initial bonus": ({"initial_bonus": [np.nan, 0]}, ModelError, r"initial_bonus\[0\] is nan"),
    "names' number": ({"state_names": ["a"]}, ModelError, "state_names must be 3 distinct strings"),
    "names' type": (
        {"action_names": [1, 2]},
        TypeError,
        "action_names must be a sequence of strings",
    ),
    "names in one": ({"action_names": "ab"}, TypeError, "action_names must be a sequence"),
}


@pytest.mark.parametrize("case", MODELS)
def test_models(case):
    arguments, error, message = MODELS[case]
    with pytest.raises(error, match=message):
        build(**arguments)


def logs(states=(0, 1, 2, 0), actions=(0, 1), rewards=(0, 1), offsets=(0, 1, 2), **more):
    return lm.Trajectories(states, actions, rewards, offsets, **more)


LOGS = {
    "state out of range": (
        lambda: logs((0, 1, 2, 3), n_states=3),
        TrajectoryError,
        "episode 1, step 1: state 3 is out of range, must be below 3",
    ),
    "action out of range": (
        lambda: logs(actions=(0, 2), n_actions=2),
        TrajectoryError,
        "episode 1, step 0: action 2",
    ),
    "mismatched reward index": (
        lambda: logs(rewards=(0, 2), reward_values=(0.0, 1.0)),
        TrajectoryError,
        "episode 1, step 0: reward index 2",
    ),
    "negative state": (lambda: logs((-1, 1, 2, 0)), TrajectoryError, r"states\[0\] is -1"),
    "float states": (lambda: logs((0.0, 1.0, 2.0, 0.0)), TypeError, "states must hold integers"),
    "too few states": (lambda: logs((0, 1, 2)), TrajectoryError, "states has 3 entries.*need 4"),
    "too few rewards": (lambda: logs(rewards=(0,)), TrajectoryError, "rewards has 1 entries"),
    "too many contexts": (
        lambda: logs(contexts=(0, 0, 0)),
        TrajectoryError,
        "contexts has 3 entries",
    ),
    "falling offsets": (
        lambda: logs(offsets=(0, 2, 1)),
        TrajectoryError,
        "offsets must not fall: episode 1",
    ),
    "late offsets": (lambda: logs(offsets=(1, 2)), TrajectoryError, "offsets must begin with 0"),
    "no offsets": (lambda: logs(offsets=()), TrajectoryError, "offsets must begin with 0"),
    "two axes": (lambda: logs(((0, 1), (2, 0))), TrajectoryError, "states must be one-dimensional"),
    "ragged": (
        lambda: lm.Trajectories.from_arrays([[0], [1, 2]], [[0]], [[0]]),
        ValueError,
        "states must be a rectangular array",
    ),
    "huge index": (
        lambda: logs((0, 1, 2, 2**40)),
        TrajectoryError,
        r"states\[3\] is 1099511627776",
    ),
    "n_states": (lambda: logs(n_states=0), ValueError, "n_states must be at least 1"),
    "reward values twice": (
        lambda: logs(reward_values=(1.0, 1.0)),
        TrajectoryError,
        "reward_values must be distinct",
    ),
    "one reward value": (
        lambda: logs(reward_values=0.5),
        TrajectoryError,
        "reward_values must be a non-empty sequence",
    ),
    "unequal arrays": (
        lambda: lm.Trajectories.from_arrays([[0, 1]], [[0, 1]], [[0, 1]]),
        TrajectoryError,
        r"shapes \(N, L\+1\), \(N, L\) and \(N, L\)",
    ),
    "unequal lists": (
        lambda: lm.Trajectories.from_lists([[0, 1], [0]], [[0], [1]], [[0], [1]]),
        TrajectoryError,
        "episode 1 has 1 states, 1 actions and 1 rewards",
    ),
    "lists of other lengths": (
        lambda: lm.Trajectories.from_lists([[0, 1]], [], []),
        TrajectoryError,
        "as many episodes, got 1, 0 and 0",
    ),
}


@pytest.mark.parametrize("case", LOGS)
def test_logs(case):
    call, error, message = LOGS[case]
    with pytest.raises(error, match=message):
        call()


CALLS = {
    "no episodes": (
        lambda m: lm.simulate(m, lm.UniformPolicy(), episodes=0, rng=0),
        ValueError,
        "episodes must be at least 1, got 0",
    ),
    "half an episode": (
        lambda m: lm.simulate(m, lm.UniformPolicy(), episodes=0.5, rng=0),
        TypeError,
        "episodes must be an integer",
    ),
    "negative seed": (
        lambda m: lm.simulate(m, lm.UniformPolicy(), episodes=1, rng=-1),
        ValueError,
        "rng must be a non-negative seed, got -1",
    ),
    "text as a seed": (
        lambda m: lm.simulate(m, lm.UniformPolicy(), episodes=1, rng="0"),
        TypeError,
        "rng must be .*got str",
    ),
    "no threads": (
        lambda m: lm.simulate(m, lm.UniformPolicy(), episodes=1, rng=0, threads=0),
        ValueError,
        "threads must be at least 1",
    ),
    "not a policy": (
        lambda m: lm.simulate(m, "uniform", episodes=1, rng=0),
        TypeError,
        "policy must be",
    ),
    "another policy's states": (
        lambda m: lm.simulate(m, lm.MarkovPolicy([0, 0]), episodes=1, rng=0),
        ValueError,
        "the policy has 2 states, the model 4",
    ),
    "a policy too short": (
        lambda m: lm.evaluate(m, lm.MarkovPolicy(np.zeros((2, 4), dtype=int))),
        ValueError,
        "the policy covers 2 steps, the model's horizon is 5",
    ),
    "another policy's actions": (
        lambda m: lm.evaluate(m, lm.MarkovPolicy([0, 0, 7, 0])),
        ValueError,
        "is 7: must be below n_actions=2",
    ),
    "unknown method": (
        lambda m: lm.evaluate(m, lm.UniformPolicy(), method="guess"),
        ValueError,
        "method.*guess",
    ),
    "logs of another space": (
        lambda m: lm.posterior(m, logs((0, 1, 2, 9))),
        TrajectoryError,
        "episode 1, step 1: state 9",
    ),
    "smoothing": (
        lambda m: lm.posterior(m, logs(), smoothing=0.9),
        ValueError,
        "smoothing must lie",
    ),
    "arguments swapped": (
        lambda m: lm.evaluate(lm.UniformPolicy(), m),
        TypeError,
        "model must be a LatentMDP, got UniformPolicy",
    ),
    "no model to play in": (
        lambda m: lm.simulate(m.transitions, lm.UniformPolicy(), 5),
        TypeError,
        "model must be a LatentMDP, got ndarray",
    ),
    **{
        f"{type(planner).__name__} of arrays": (
            lambda m, planner=planner: planner.plan(m.transitions),
            TypeError,
            "model must be a LatentMDP, got ndarray",
        )
        for planner in (lm.QMDP(), lm.PBVI(), lm.HSVI(), lm.Exact(), lm.Memoryless())
    },
    "states numbered in millions": (
        lambda m: lm.initialize(
            None, lm.Trajectories.from_arrays([[10**6, 0, 7]] * 3, [[0, 0]] * 3, [[0, 0]] * 3), 2
        ),
        TrajectoryError,
        "states are numbered up to 1000000 and 3 of them occur",
    ),
}


@pytest.mark.parametrize("case", CALLS)
def test_calls(case):
    call, error, message = CALLS[case]
    with pytest.raises(error, match=message):
        call(random_model())


def test_files(tmp_path):
    path = tmp_path / "m.json"
    lm.save(random_model(), path)
    text = path.read_text()
    path.write_text(text[: len(text) // 2])
    with pytest.raises(FormatError, match=r"m\.json: not valid JSON, or truncated"):
        lm.load(path)
    path.write_text(json.dumps({**json.loads(text), "schema": 2}))
    with pytest.raises(FormatError, match=r"m\.json: schema version 2 of model is newer than 1"):
        lm.load(path)


def test_every_error_of_the_library_is_a_latentmdp_error():
    for error in (ModelError, TrajectoryError, FormatError):
        assert issubclass(error, LatentMDPError)
        assert issubclass(error, ValueError)


def test_things_of_another_kind_are_named() -> None:
    """Swapped or wrong arguments: a TypeError that says which one and what it was."""
    model = random_model(0)
    logs = lm.simulate(model, lm.UniformPolicy(), 5, rng=0)
    psr = lm.SpectralPSR(rank=1).from_model(model)
    plan = lm.QMDP().plan(model)
    run = lm.LUCRL().run(model, 3, rng=0)
    calls = {
        "model must be a LatentMDP, got Trajectories": lambda: lm.posterior(logs, model),
        "logs must be Trajectories or LogFiles, got LatentMDP": lambda: lm.posterior(model, model),
        "estimate must be a LatentMDP, got Fit": lambda: lm.model_error(model, lm.EM(1).fit(logs)),
        "model must be a LatentMDP, got int": lambda: lm.separation(3),
        "psr must be a PSR, got Trajectories": lambda: lm.recover(logs, psr),
        "logs must be Trajectories or LogFiles, got PSR": lambda: lm.recover(psr, psr),
        "logs must be Trajectories or LogFiles, got str": lambda: lm.SpectralPSR(rank=1).fit("x"),
        "model must be a LatentMDP, got str": lambda: lm.SpectralPSR(rank=1).from_model("x"),
        "batch 1 must be Trajectories, got list": lambda: lm.Trajectories.concat([logs, []]),
        "reference must be a Plan, got float": lambda: run.regret(3.0),
        "model must be a LatentMDP, got Plan": lambda: lm.AlphaVectorPolicy(
            [[0.0]], [0], [0], plan
        ),
    }
    for message, call in calls.items():
        with pytest.raises(TypeError, match=message):
            call()
