"""Models of Storm and PRISM; what joins their contexts is tested without stormpy too."""

import sys
from importlib.util import find_spec

import numpy as np
import pytest

import latentmdp as lm
from latentmdp.errors import FormatError
from latentmdp.io import determined_pomdp, storm

needs_storm = pytest.mark.skipif(find_spec("stormpy") is None, reason="stormpy is not installed")


def system(T, first=0, goal=(), rewards=None):
    """The part of a dense MDP (S, A, S) that can be reached, as a model checker would build it."""
    A = T.shape[1]
    order = [first]
    for s in order:
        if s not in goal:
            order += [int(n) for n in np.flatnonzero(T[s].any(axis=0)) if n not in order]
    number = {s: i for i, s in enumerate(order)}
    choices = [(s, a) for s in order for a in range(A)]
    entries = [
        (c, number[int(n)] if int(n) in number else number[s], T[s, a, n])
        for c, (s, a) in enumerate(choices)
        for n in (np.flatnonzero(T[s, a]) if s not in goal else [s])
    ]
    choice, state, chance = (np.array(column) for column in zip(*entries))
    chance = np.where(np.isin([choices[c][0] for c in choice], list(goal)), 1.0, chance)
    names = np.array([f"x={s}" for s in order])
    return storm.System(
        states=names,
        seen=names,
        first=np.array([0]),
        choice_state=np.array([number[s] for s, _ in choices]),
        choice_name=np.array([f"a{a}" for _, a in choices]),
        choice_reward=np.zeros(len(choices))
        if rewards is None
        else np.array([rewards[s, a] for s, a in choices]),
        entry_choice=choice,
        entry_state=state,
        probability=chance,
        goal=np.isin(order, list(goal)),
    )


def sparse(rng, S, A):
    T = np.zeros((S, A, S))
    for s, a in np.ndindex(S, A):
        reached = rng.choice(S, 2, replace=False)
        T[s, a, reached] = rng.dirichlet(np.ones(2))
    return T


@pytest.mark.parametrize("seed", range(8))
def test_contexts_that_reach_different_states_are_one_model(seed):
    """Against each MDP by itself: what a Markov policy earns is the mean over the contexts."""
    rng = np.random.default_rng(seed)
    S, A, H = 5, 2, 4
    chains, rewards = [sparse(rng, S, A) for _ in range(3)], rng.normal(size=(3, S, A))
    systems = [system(T, rewards=R) for T, R in zip(chains, rewards)]
    pomdp = storm.joined(systems, ["one", "two", "three"], None, 1.0)
    model = determined_pomdp.latent_mdp(pomdp, H, 1000)
    assert model.context_names == ("one", "two", "three")
    assert set(model.state_names) == {name for part in systems for name in part.states.tolist()}
    by_name = rng.integers(A, size=S)
    policy = [by_name[int(name[2:])] for name in model.state_names]
    value = lm.evaluate(model, lm.MarkovPolicy(np.tile(policy, (H, 1)))).by_context
    for T, R, earned in zip(chains, rewards, value):
        mass, expected = np.eye(S)[0], 0.0
        for _ in range(H):
            expected += mass @ R[range(S), by_name]
            mass = mass @ T[range(S), by_name]
        assert earned == pytest.approx(expected)


@pytest.mark.parametrize("seed", range(4))
def test_a_goal_is_one_state_and_its_value_a_probability(seed):
    rng = np.random.default_rng(seed)
    S, A, H = 5, 2, 4
    chains = [sparse(rng, S, A) for _ in range(2)]
    pomdp = storm.joined([system(T, goal=(3, 4)) for T in chains], ["one", "two"], "home", 1.0)
    model = determined_pomdp.latent_mdp(pomdp, H, 1000).reaching("home")
    if "home" not in model.state_names:
        return
    policy = lm.MarkovPolicy(np.zeros((H, model.n_states), int))
    for T, found in zip(chains, lm.evaluate(model, policy).by_context):
        mass = np.eye(S)[0]
        for _ in range(H):
            stays = np.isin(np.arange(S), (3, 4))
            mass = np.where(stays, mass, 0.0) + (mass * ~stays) @ T[:, 0]
        assert found == pytest.approx(mass[3:].sum())


def test_what_a_state_offers_must_not_depend_on_the_context():
    rng = np.random.default_rng(0)
    one, two = system(np.full((2, 2, 2), 0.5)), system(np.full((2, 1, 2), 0.5))
    pomdp = storm.joined([one, two], ["one", "two"], None, 0.9)
    with pytest.raises(
        FormatError, match="nothing follows action a1 in x=0 two, but something does"
    ):
        determined_pomdp.latent_mdp(pomdp, None, 1000)
    bad = one._replace(probability=one.probability * rng.choice([1.0, 0.6], one.probability.size))
    with pytest.raises(FormatError, match="of context 'bad' sums to 0"):
        storm.joined([one, bad], ["good", "bad"], None, 0.9)


def test_without_stormpy_a_sentence_says_how_to_install_it(tmp_path, monkeypatch):
    monkeypatch.setattr(storm, "find_spec", lambda name: None)
    (tmp_path / "m.prism").write_text("mdp")
    with pytest.raises(FormatError, match=r"pip install 'latentmdp\[storm\]'"):
        lm.load(tmp_path / "m.prism", goal='"done"')


PRISM = """mdp
const int K;
module walk
 s : [0..3] init 0;
 [left] s=0 -> 0.5:(s'=1) + 0.5:(s'=2);
 [right] s=0 -> (s'=K);
 [again] s>0 & s<3 -> (s'=0);
 [again] s=3 -> true;
endmodule
rewards "cost"
 s=1 : 2;
 [left] true : 1;
endrewards
label "done" = s=K;
label "far" = s=3;
"""


@pytest.fixture
def prism(tmp_path):
    path = tmp_path / "walk.prism"
    path.write_text(PRISM)
    return path


@needs_storm
def test_a_prism_file_with_an_open_constant(prism):
    model = lm.load(prism, hidden={"K": range(1, 4)}, goal='"done"', horizon=3)
    assert model.context_names == ("K=1", "K=2", "K=3")
    assert set(model.action_names) == {"left", "right", "again"}
    assert {"s=0", "done"} <= set(model.state_names)
    sure = lm.theory.almost_surely(model, '"done"')
    assert sure.holds  # right
    assert lm.evaluate(model, sure.policy).mean == pytest.approx(1.0)
    far = lm.load(prism, hidden={"K": [1, 3]}, goal='"far"', discount=0.9)
    never = lm.theory.almost_surely(far, "far")
    assert never.reason == "in context 'K=1' no policy reaches the goal surely from state 's=0'"
    with pytest.raises(FormatError, match="'far' is reached in no context"):
        lm.load(prism, hidden={"K": [1, 2]}, goal='"far"', discount=0.9)


@needs_storm
def test_rewards_and_expressions(prism):
    model = lm.load(prism, hidden={"K": [1, 3]}, horizon=2)
    s, left = model.state_names.index("s=0"), model.action_names.index("left")
    assert model.bonus[:, s, left].tolist() == [1.0, 1.0]
    somewhere = lm.load(prism, hidden={"K": 3}, goal="s>=2", discount=0.5)
    assert "s>=2" in somewhere.state_names
    plan = lm.HSVI(gap=1e-6, time_limit=5).plan(somewhere)
    assert plan.lower == pytest.approx(1.0)  # right, at once


@needs_storm
def test_a_folder_has_one_file_for_each_context(tmp_path, prism):
    folder = tmp_path / "models"
    folder.mkdir()
    for k in (2, 10):
        text = PRISM.replace("const int K;", f"const int K = {1 + k % 3};")
        (folder / f"m{k}.prism").write_text(text)
    model = lm.load(folder, goal='"done"', horizon=3)
    assert model.context_names == ("m2", "m10")


DRN = """@type: MDP
@parameters

@reward_models

@nr_states
3
@nr_choices
4
@model
state 0 init
\taction stay
\t\t0 : 1
\taction go
\t\t1 : CHANCE
\t\t2 : REST
state 1 done
\taction stay
\t\t1 : 1
state 2
\taction stay
\t\t2 : 1
"""


@needs_storm
def test_explicit_files(tmp_path):
    for name, chance in (("a", 0.25), ("b", 0.75)):
        text = DRN.replace("CHANCE", str(chance)).replace("REST", str(1.0 - chance))
        (tmp_path / f"{name}.drn").write_text(text)
    model = lm.load(tmp_path, goal='"done"', horizon=2)
    assert model.action_names == ("go", "stay")
    plan = lm.HSVI(gap=1e-9, time_limit=5).plan(model)
    assert plan.lower == pytest.approx(0.5)


POMDP = """pomdp
observables place endobservables
module door
 side : [0..2] init 0;
 place : [0..2] init 0;
 [go] place=0 -> 0.5:(side'=1)&(place'=1) + 0.5:(side'=2)&(place'=1);
 [left] place=1 & side=1 -> (place'=2);
 [right] place=1 & side=1 -> 0.5:(place'=1) + 0.5:(place'=1);
 [left] place=1 & side=2 -> true;
 [right] place=1 & side=2 -> (place'=2);
 [go] place=2 -> true;
endmodule
label "in" = place=2;
"""


@needs_storm
def test_a_pomdp_of_prism_whose_hidden_part_is_drawn_first(tmp_path):
    path = tmp_path / "door.prism"
    path.write_text(POMDP)
    model = lm.load(path, goal='"in"', horizon=3)
    assert model.n_contexts == 2
    assert lm.HSVI(gap=1e-9, time_limit=5).plan(model).lower == pytest.approx(1.0)
    assert lm.HSVI(gap=1e-9).plan(model.replace(horizon=2)).lower == pytest.approx(0.5)
    assert lm.theory.almost_surely(model, "in").holds


BAD = {
    "a missing constant": ({}, "the constant 'K' has no value: hidden="),
    "no such constant": ({"hidden": {"K": 1, "L": 2}}, "hidden names 'L', which is no open"),
    "no values": ({"hidden": {"K": []}}, "hidden gives no value for 'K'"),
    "an unknown label": ({"hidden": {"K": 1}, "goal": '"dune"'}, "label 'dune'"),
    "no expression": ({"hidden": {"K": 1}, "goal": "1+"}, "1 to be of boolean type"),
    "no such reward": ({"hidden": {"K": 1}, "reward": "gain"}, "reward models 'cost'"),
    "too many states": ({"hidden": {"K": 1}, "max_states": 2}, "3 states: load"),
}


@needs_storm
@pytest.mark.parametrize("kind", BAD)
def test_bad_requests_are_told_why(prism, kind):
    arguments, message = BAD[kind]
    with pytest.raises(FormatError, match=message):
        lm.load(prism, horizon=3, **arguments)


@needs_storm
@pytest.mark.skipif(sys.platform != "linux", reason="the limit on memory is one of Linux")
def test_a_model_of_a_thousand_million_states_is_refused(tmp_path):
    axes = "".join(f" {x} : [0..999] init 0;\n" for x in "xyz")
    moves = "".join(f" [{x}] true -> ({x}'=min({x}+1,999));\n" for x in "xyz")
    path = tmp_path / "large.prism"
    path.write_text(f'mdp\nmodule m\n{axes}{moves}endmodule\nlabel "done" = x=999;\n')
    with pytest.raises(FormatError, match="needs more memory than 10,000 states"):
        lm.load(path, goal='"done"', max_states=10_000, horizon=5)


@needs_storm
def test_prose_is_refused(tmp_path):
    for suffix in (".prism", ".umb"):
        path = tmp_path / f"m{suffix}"
        path.write_text("Dear reader,\n")
        with pytest.raises(FormatError):
            lm.load(path, goal='"done"', horizon=3)
