"""L-UCRL on the outcomes it sees: the same as on arrays, and no larger than what was seen."""

import tracemalloc

import numpy as np
import pytest
from small_worlds import PlainQMDP, small

import latentmdp as lm
from latentmdp.experiments.lucrl_runs import labelled_samples, unrelated_model
from latentmdp.online import Counts, empirical_model
from latentmdp.online.bonus import Widths
from latentmdp.online.empirical_model import EmpiricalModel
from latentmdp.testing import random_model
from latentmdp.worlds import Space


@pytest.fixture
def tables(monkeypatch):
    """Call it, and every learner keeps a table of what it sees."""
    return lambda: monkeypatch.setattr(empirical_model, "few_entries", lambda number: False)


OPTIONS = [
    {},
    {"replan": "lazy"},
    {"bonus": None},
    {"contexts": "inferred", "start": "other"},
    {"contexts": "inferred", "start": "logs", "weights": "learned", "replan": 1.5},
    {"contexts": "inferred", "start": "other", "reward_model": "transition"},
]


def learner(model, options, **others):
    starts = {"other": unrelated_model(model, 7), "logs": labelled_samples(model, 4, 0)}
    given = {k: starts.get(v, v) if isinstance(v, str) else v for k, v in options.items()}
    return lm.LUCRL(**given, **others)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_table_and_arrays_learn_the_same(options, tables):
    model = small()
    dense = learner(model, options).run(model, 200, rng=1)
    tables()
    run = learner(model, options).run(model, 200, rng=1)
    np.testing.assert_array_equal(run.returns, dense.returns)
    for name in ("transitions", "rewards", "initial", "visits", "episodes"):
        found, expected = getattr(run.counts, name), getattr(dense.counts, name)
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(run.error_curve.values, dense.error_curve.values, rtol=1e-9)
    assert run.optimistic_value == pytest.approx(dense.optimistic_value, rel=1e-9)
    assert lm.model_error(dense.model, run.model) == pytest.approx(0.0, abs=1e-8)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_any_planner_takes_the_same_steps_on_a_table(options, tables):
    tables()
    model = small()
    options = {"bonus": lm.Bonus()} | options
    fast = learner(model, options).run(model, 60, rng=1)
    slow = learner(model, options, planner=PlainQMDP()).run(model, 60, rng=1)
    np.testing.assert_array_equal(fast.returns, slow.returns)
    np.testing.assert_allclose(fast.policy.vectors, slow.policy.vectors, rtol=1e-12, atol=1e-12)
    assert fast.optimistic_value == pytest.approx(slow.optimistic_value, rel=1e-12)


@pytest.mark.parametrize("planner", [lm.QMDP(), PlainQMDP()], ids=["compiled", "plain"])
def test_an_interrupted_run_on_a_table_ends_the_same(planner, tables, tmp_path):
    tables()
    model = small(2)
    start = unrelated_model(model, 3)
    learner = lm.LUCRL(planner=planner, contexts="inferred", start=start)
    whole = learner.run(model, 90, rng=4)
    learning = learner.begin(lm.worlds.as_world(model), 90, whole.settings["key"])
    while learning.done < 40:
        learning.plan()
        learning.absorb(learning.play(7))
    saved = {name: np.array(array) for name, array in learning.arrays().items()}
    again = learner.begin(lm.worlds.as_world(model), 90, whole.settings["key"])
    again.restore(saved)
    while again.done < 90:
        again.plan()
        again.absorb(again.play(min(20, again.next_stop() - again.done)))
    run = again.result(whole.settings)
    np.testing.assert_array_equal(run.returns, whole.returns)
    assert run.counts == whole.counts
    np.testing.assert_array_equal(run.policy.vectors, whole.policy.vectors)
    path = tmp_path / "run.npz"
    lm.save(run, path)
    assert lm.load(path).counts == run.counts


@pytest.mark.parametrize("form", ["arrays", "table"])
@pytest.mark.parametrize("kind", ["state-action", "transition"])
def test_counts_of_any_start_add_up_and_come_back(kind, form, tables):
    """Sums of a model's rows and of logs, through the cells that a run counts in."""
    if form == "table":
        tables()
    model = small(5)
    space, logs = Space.of(model), lm.simulate(model, lm.UniformPolicy(), 40, rng=0)
    nothing, prior, seen = (Counts.start(s, space, 2.0, kind) for s in (None, model, logs))
    assert nothing.moves.size == nothing.payments.size == 0
    joint = model.observation_probs()
    rewards = joint if kind == "transition" else joint.sum(axis=3)
    np.testing.assert_allclose(prior.transitions, 2.0 * model.transitions, atol=1e-12)
    np.testing.assert_allclose(prior.rewards, 2.0 * rewards, atol=1e-12)
    both = prior + seen
    for name in ("transitions", "rewards", "initial", "visits"):
        expected = getattr(prior, name) + getattr(seen, name)
        np.testing.assert_allclose(getattr(both, name), expected, atol=1e-12, err_msg=name)
    assert nothing + both == both
    arrays = Counts.of_arrays(both.transitions, both.rewards, both.initial)
    assert arrays == both
    empirical = EmpiricalModel.begin(space, both, Widths(), 0.0, 0.0, None, True)
    assert empirical.counts() == both
    empirical.add_counts(both)
    np.testing.assert_allclose(empirical.counts().transitions, 2.0 * both.transitions, rtol=1e-15)


@pytest.mark.parametrize("form", ["arrays", "table"])
def test_a_row_with_less_than_one_visit_sums_to_less_than_one(form, tables):
    """As in Algorithm 1."""
    if form == "table":
        tables()
    model = small(5)
    space = Space.of(model)
    few = Counts.start(model, space, 0.25, "state-action")
    found = EmpiricalModel.begin(space, few, Widths(), 0.0, 0.0, None, True)
    optimistic = found.optimistic_model(few)
    np.testing.assert_allclose(optimistic.transitions.sum(axis=-1), 0.25)
    np.testing.assert_allclose(optimistic.mean_rewards(), 0.25 * model.mean_rewards())


@pytest.mark.parametrize("form", ["arrays", "table"])
@pytest.mark.parametrize("kind", ["state-action", "transition"])
def test_distances_to_the_truth_are_those_of_the_models(kind, form, tables):
    if form == "table":
        tables()
    model = small(5)
    space = Space.of(model)
    logs = lm.simulate(model, lm.UniformPolicy(), 9, rng=0)
    counts = Counts.start(logs, space, 0.0, kind) + Counts.start(
        unrelated_model(model, 3), space, 0.1, kind
    )
    empirical = EmpiricalModel.begin(space, counts, Widths(), 0.0, 0.0, None, True)
    expected = model.distances(empirical.counts().model(space))
    np.testing.assert_allclose(empirical.distances(model), expected, rtol=1e-10)


def test_posterior_sampling_draws_models_from_a_table(tables):
    tables()
    model = small(1)
    run = lm.online.PosteriorSampling().run(model, 40, rng=0)
    assert run.counts.visits.sum() == pytest.approx(40 * model.horizon)
    again = lm.online.PosteriorSampling().run(model, 40, rng=0)
    np.testing.assert_array_equal(run.returns, again.returns)


def crossroads(side, horizon):
    """A grid whose two contexts have their prize in different corners; each step may slip."""
    S, A = side * side, 4
    entries = []
    for s in range(S):
        row, column = divmod(s, side)
        moves = [(max(row - 1, 0), column), (min(row + 1, side - 1), column)]
        moves += [(row, max(column - 1, 0)), (row, min(column + 1, side - 1))]
        reached = [r * side + c for r, c in moves]
        entries += [(s * A + a, n, 0.9 if b == a else 0.1 / 3) for a in range(A)
                    for b, n in enumerate(reached)]  # fmt: skip
    rows, n, p = (np.array(column) for column in zip(*entries))
    prize = np.array([side - 1, S - side])
    keys = [(n == prize[m]).astype(int) for m in range(2)]
    parts = [(rows, n, keys[m], np.full(rows.size, m), p) for m in range(2)]
    joined = (np.concatenate(column) for column in zip(*parts))
    table = lm.outcomes.outcomes_from_entries(*joined, (2, S, A, 2))
    return lm.LatentMDP.from_outcomes(*table, n_states=S, horizon=horizon, initial=0)


def test_memory_follows_what_was_seen():
    """Arrays of 900 states would have 2 * 900 * 4 * 900 entries, 52 MB, several times over."""
    model = crossroads(30, 40)
    world = lm.worlds.as_world(model)
    learner = lm.LUCRL(replan="lazy")
    learner.run(world, 2, rng=0)  # compiled before memory is counted
    tracemalloc.start()
    run = learner.run(world, 50, rng=0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert run.model.is_table
    assert run.counts.moves.size <= model.outcomes.size
    values = run.policy.vectors.nbytes
    assert peak < 8 * values < 52e6


def limited(form="arrays"):
    """About half of the actions are forbidden, and the last state is terminal."""
    model = random_model(3, contexts=2, states=6, actions=4, horizon=8)
    allowed = np.random.default_rng(3).random((6, 4)) < 0.5
    allowed[np.arange(5), np.arange(5) % 4] = True
    allowed[5] = False
    model = model.replace(allowed=allowed)
    return model.replace(outcomes=model.outcomes) if form == "table" else model


@pytest.mark.parametrize("form", ["arrays", "table"])
@pytest.mark.parametrize("contexts", ["revealed", "inferred"])
def test_lucrl_never_tries_what_is_forbidden_and_becomes_good(form, contexts, tables):
    """Its policy earns nearly what Q-MDP's bound on all policies allows."""
    if form == "table":
        tables()
    model = limited(form)
    logs = lm.simulate(model, lm.UniformPolicy(), 200, rng=0)
    start = None if contexts == "revealed" else logs
    learner = lm.LUCRL(contexts=contexts, start=start)
    run = learner.run(model, 3_000, rng=0)
    assert (run.counts.visits[:, ~model.allowed] == 0.0).all()
    assert (run.counts.visits[:, model.allowed].sum(axis=0) > 0.0).all()
    value = lm.evaluate(model, run.policy, 20_000, rng=1).mean
    assert value > 0.95 * lm.QMDP().plan(model).upper
    assert run.model.terminal[-1]
    planners = (lm.QMDP(), PlainQMDP())
    fast, slow = (
        lm.LUCRL(planner, contexts, start, bonus=lm.Bonus()).run(model, 60, rng=0)
        for planner in planners
    )
    np.testing.assert_array_equal(fast.returns, slow.returns)
    np.testing.assert_allclose(fast.policy.vectors, slow.policy.vectors, rtol=1e-12)


@pytest.mark.parametrize(
    "learner",
    [
        lm.online.PosteriorSampling(),
        lm.online.baselines.uniform(),
        lm.online.Refit(2),
        lm.online.Refit(2, reward_model="transition"),
    ],
    ids=["posterior sampling", "uniform", "refit", "refit, transition"],
)
@pytest.mark.parametrize("form", ["arrays", "table"])
def test_no_learner_tries_what_is_forbidden(learner, form, tables, monkeypatch):
    if form == "table":
        tables()
        monkeypatch.setattr(lm.estimation.likelihood, "few_entries", lambda number: False)
    model = limited()
    run = learner.run(model, 60, rng=0)
    if run.logs is not None:
        steps = run.logs.steps()
        assert model.allowed[steps.state, steps.action].all()
        assert not model.terminal[steps.state].any()
        assert run.model.terminal[-1]
    else:
        assert (run.counts.visits[:, ~model.allowed] == 0.0).all()
        assert run.counts.visits.sum() > 60


def test_a_terminal_state_has_no_bonus_and_no_value():
    model = limited()
    space = Space.of(model)
    counts = Counts.zero(space, "state-action")
    widths = lm.Bonus().widths(space, 100)
    empirical = EmpiricalModel.begin(space, counts, widths, 0.01, 0.0, None, True)
    empirical.replan()
    bonus = empirical.bonus()
    assert (bonus[:, ~model.allowed] == 0.0).all()
    assert (bonus[:, model.allowed] == widths.reach).all()
    lanes = empirical.optimistic.values.reshape(2, 8, 4, -1)[..., :6]
    assert (lanes[..., -1] == 0.0).all()
    allowed = np.broadcast_to(model.allowed.T, lanes.shape)
    assert (lanes[allowed] == widths.reach).all()


@pytest.mark.parametrize("learn", [lm.LUCRL().run, lm.learn, lm.online.PosteriorSampling().run])
def test_a_world_without_end_is_refused(learn):
    model = random_model(0, horizon=None, discount=0.9)
    with pytest.raises(lm.errors.ModelError, match="learning needs a horizon"):
        learn(model, episodes=10, rng=0)
