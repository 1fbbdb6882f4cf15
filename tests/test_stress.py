"""Numbers at the edge: long horizons, vanishing weights, many contexts, one of everything."""

import os
from pathlib import Path

import numpy as np
import pytest

import latentmdp as lm
from latentmdp import testing

LONG = 100_000

pytestmark = pytest.mark.filterwarnings("ignore::latentmdp.fit.FitWarning")


def sparse_model(M, S, A, horizon, seed=0, successors=3, weights=None):
    """Every row reaches a few states; rewards differ between contexts."""
    rng = np.random.default_rng(seed)
    T = np.zeros((M, S, A, S))
    reached = rng.integers(S, size=(M, S, A, successors))
    shares = rng.dirichlet(np.ones(successors), (M, S, A))
    m, s, a = np.ogrid[:M, :S, :A]
    for k in range(successors):
        T[m, s, a, reached[..., k]] += shares[..., k]
    return lm.LatentMDP(T, rng.random((M, S, A)), horizon=horizon, weights=weights)


def ring(horizon, gap=0.02):
    """Two contexts on two states that are hard to tell apart."""
    p = np.array([0.5 - gap, 0.5 + gap])
    T = np.stack([np.stack([1 - p, p], -1)[:, None].repeat(2, 1)] * 2, axis=1)
    return lm.LatentMDP(T, np.array([[[0.3, 0.6]] * 2, [[0.6, 0.3]] * 2]), horizon=horizon)


def check_beliefs(beliefs, shape):
    assert beliefs.shape == shape
    assert np.isfinite(beliefs).all()
    np.testing.assert_allclose(beliefs.sum(axis=1), 1.0, rtol=1e-12)


def test_a_horizon_of_a_hundred_thousand():
    model = ring(LONG)
    plan = lm.QMDP().plan(model)
    logs = lm.simulate(model, plan.policy, 4, rng=0)
    belief = lm.posterior(model, logs)
    check_beliefs(belief, (4, 2))
    # 0.02 apart in every transition: after 1e5 steps the context is certain to many digits.
    np.testing.assert_array_equal(belief.argmax(axis=1), logs.contexts)
    value = lm.evaluate(model, plan.policy, 8, rng=0, method="monte-carlo")
    assert value.mean <= plan.upper + 5.0 * value.stderr
    assert value.mean == pytest.approx(0.6 * LONG, rel=0.01)  # the belief soon plays the right arm
    blind = lm.evaluate(model, lm.UniformPolicy())
    assert blind.exact
    assert blind.mean == pytest.approx(0.45 * LONG, rel=1e-9)


def test_learning_from_four_episodes_of_a_hundred_thousand_steps():
    model = ring(LONG, gap=0.3)
    logs = lm.simulate(model, lm.UniformPolicy(), 4, rng=4)
    assert sorted(set(logs.contexts)) == [0, 1]
    fit = lm.EM(2, restarts=1).fit(logs, rng=0)
    assert np.isfinite(fit.log_likelihood)
    check_beliefs(fit.responsibilities, (4, 2))
    assert lm.clustering_accuracy(logs.contexts, fit.labels) == 1.0
    # 1e5 steps of each context over 4 rows: counts are off by 0.004 a row on average.
    assert lm.model_error(model, fit.model, per_cell=True) < 0.03


@pytest.mark.parametrize("tiny", [1e-300, 5e-324])
def test_weights_next_to_nothing(tiny):
    model = ring(40, gap=0.3).replace(weights=[1.0, tiny])
    plan = lm.QMDP().plan(model)
    assert np.isfinite(plan.upper)
    logs = lm.simulate(model, plan.policy, 200, rng=0)
    assert (logs.contexts == 0).all()
    check_beliefs(lm.posterior(model, logs), (200, 2))
    # Certain evidence beats any prior: context 0 never stays, context 1 never leaves.
    stay = np.eye(2)[:, None].repeat(2, 1)
    leave = stay[::-1]
    decided = lm.LatentMDP(
        np.stack([leave, stay]), model.mean_rewards(), weights=[1.0, tiny], initial=0, horizon=3
    )
    seen = lm.Trajectories.from_arrays([[0, 0, 0, 0]], [[0, 0, 0]], [[0, 0, 0]])
    np.testing.assert_array_equal(lm.posterior(decided, seen), [[0.0, 1.0]])
    short = model.replace(horizon=4)
    bounds, best = lm.HSVI(gap=1e-6, time_limit=5).plan(short), testing.optimal_value(short)
    assert bounds.lower - 1e-9 <= best <= bounds.upper + 1e-9
    value = lm.evaluate(model, plan.policy, 500, rng=0)
    assert np.isfinite(value.mean)


@pytest.mark.parametrize("weights", [(0.5, 0.5, 1e-300), (1.0, 1e-200, 5e-324), (1.0, 1e-310, 0)])
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_every_planner_bears_weights_next_to_nothing(weights):
    model = sparse_model(3, 2, 2, horizon=3, weights=weights).replace(initial=0)
    best, memoryless = testing.optimal_value(model), testing.optimal_memoryless_value(model)
    for planner in (lm.HSVI(gap=0.0, time_limit=1), lm.PBVI(), lm.PBVI(spacing=0.3), lm.Exact()):
        plan = planner.plan(model)
        assert plan.lower <= best + 1e-12
        assert plan.upper >= best - 1e-12
    for method in ("branch-and-bound", "cadp"):
        plan = lm.Memoryless(method=method).plan(model)
        assert plan.lower == pytest.approx(memoryless)
        assert plan.upper >= memoryless - 1e-12


@pytest.mark.parametrize("tiny", [1e-300, 1e-310])
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_transitions_next_to_nothing(tiny):
    T = np.zeros((2, 2, 2, 2))
    T[..., 0], T[..., 1] = tiny, 1.0
    means = np.array([[[0.1, 0.9], [0.8, 0.2]], [[0.3, 0.4], [0.5, 0.6]]])
    model = lm.LatentMDP(T, means, initial=1, horizon=3)
    best = testing.optimal_value(model)
    for planner in (lm.HSVI(gap=1e-6), lm.PBVI(), lm.Exact(), lm.Memoryless()):
        plan = planner.plan(model)
        assert plan.lower == pytest.approx(best, rel=0.1)
        assert plan.lower - 1e-12 <= best
        if not isinstance(planner, lm.Memoryless):  # whose bound is that of memoryless policies
            assert plan.upper >= best - 1e-12
    diagnosis = lm.diagnose(model, episodes=100)
    np.testing.assert_allclose(diagnosis.diameter, 1.0 / tiny)
    psr = lm.SpectralPSR(rank=2).from_model(model)
    episode = ([1, 1, 1], [0, 1], [1, 0])
    expected = testing.trajectory_probability(model, *episode)
    assert psr.sequence_probability(*episode) == pytest.approx(expected)


def test_probabilities_next_to_nothing():
    T = np.array([[[[1.0, 1e-300]], [[1e-300, 1.0]]], [[[0.5, 0.5]], [[0.5, 0.5]]]])
    model = lm.LatentMDP(T, np.full((2, 2, 1), 0.5), initial=0, horizon=400)
    states = np.arange(401)[None] % 2
    logs = lm.Trajectories.from_arrays(
        states, np.zeros((1, 400), int), np.zeros((1, 400), int), reward_values=(0.0, 1.0)
    )
    # 1e-300 to the power 400, and 0.5 to the power 400, are both beyond a float together.
    np.testing.assert_array_equal(lm.posterior(model, logs), [[0.0, 1.0]])


@pytest.mark.parametrize(("M", "S"), [(50, 60), (3, 500)])
def test_many_contexts_and_many_states(M, S):
    model = sparse_model(M, S, 2, horizon=20)
    plan = lm.QMDP().plan(model)
    logs = lm.simulate(model, plan.policy, 300, rng=0)
    belief = lm.posterior(model, logs)
    check_beliefs(belief, (300, M))
    assert (belief.argmax(axis=1) == logs.contexts).mean() > 0.9  # few states follow each other
    value = lm.evaluate(model, plan.policy, 2_000, rng=1)
    assert value.mean <= plan.upper + 5.0 * value.stderr
    assert value.mean > lm.evaluate(model, lm.UniformPolicy()).mean


def test_fifty_contexts_fitted_and_planned():
    model = sparse_model(50, 6, 2, horizon=15, successors=6)
    logs = lm.simulate(model, lm.UniformPolicy(), 300, rng=0)
    fit = lm.EM(50, restarts=1, max_iter=5).fit(logs, start=model, rng=0)
    assert np.isfinite(fit.history).all()
    assert (np.diff(fit.history) >= -1e-9 * np.abs(fit.history[0])).all()
    check_beliefs(fit.responsibilities, (300, 50))
    plan = lm.HSVI(gap=0.01, time_limit=1.0).plan(model)
    # What the policy earns lies between the bounds: a false alarm in 2 million.
    value = lm.evaluate(model, plan.policy, 20_000, rng=0)
    assert plan.lower - 5.0 * value.stderr <= value.mean <= plan.upper + 5.0 * value.stderr
    # The bounds are no worse than those of each context alone, where they start.
    alone = lm.planning.q_values(model).argmax(axis=2)
    known = [lm.evaluate(model, lm.MarkovPolicy(alone[..., k])).mean for k in range(50)]
    assert max(known) - 1e-9 <= plan.lower
    assert plan.upper <= lm.QMDP().plan(model).upper + 1e-9
    if not plan.converged:
        assert "time limit" in plan.message


@pytest.mark.parametrize(
    ("M", "S", "A"), [(1, 3, 2), (3, 1, 2), (3, 3, 1), (1, 1, 1)], ids=lambda n: str(n)
)
def test_one_of_something(M, S, A):
    model = sparse_model(M, S, A, horizon=5, successors=1)
    plans = [p.plan(model) for p in (lm.QMDP(), lm.HSVI(gap=1e-6, time_limit=10), lm.Exact())]
    best = plans[2].lower
    assert plans[1].lower <= best + 1e-9
    assert plans[1].upper >= best - 1e-9
    if M == 1 or A == 1:  # nothing to find out, or nothing to choose: Q-MDP is optimal
        assert plans[0].upper == pytest.approx(best)
        found = lm.evaluate(model, plans[0].policy, method="exact")
        assert found.mean == pytest.approx(best)
    logs = lm.simulate(model, lm.UniformPolicy(), 50, rng=0)
    check_beliefs(lm.posterior(model, logs), (50, M))
    fit = lm.EM(M, restarts=1).fit(logs, rng=0)
    assert np.isfinite(fit.log_likelihood)
    assert fit.model.n_contexts == M
    session = plans[0].policy.session()
    session.observe(0)
    assert session.act() < A
    run = lm.LUCRL().run(model, 10, rng=0)
    assert np.isfinite(run.returns).all()


def test_a_horizon_of_one():
    model = sparse_model(3, 4, 2, horizon=1)
    plan = lm.Exact().plan(model)
    initial = np.einsum("m,ms->ms", model.weights, model.initial)
    best = np.einsum("ms,msa->sa", initial, model.mean_rewards()).max(axis=1).sum()
    assert plan.lower == pytest.approx(best)
    assert lm.evaluate(model, lm.QMDP().plan(model).policy, method="exact").mean == pytest.approx(
        best
    )


def _resident() -> int:
    """KiB of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") // 1024


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
@pytest.mark.parametrize("what", ["hsvi", "pbvi", "evaluate", "session", "em"])
def test_memory_and_open_files_stay_flat(what):
    """A leak of a plan's tables, 230 KiB in 0.2, would show as 35 MiB; room for 8 is left."""
    model = lm.testing.random_model(0, contexts=3, states=5, actions=2, horizon=6)
    logs = lm.simulate(model, lm.UniformPolicy(), 50, rng=0)
    policy = lm.QMDP().plan(model).policy
    work = {
        "hsvi": lambda: lm.HSVI(gap=0.1, threads=1).plan(model),
        "pbvi": lambda: lm.PBVI(beliefs=10, threads=1).plan(model),
        "evaluate": lambda: lm.evaluate(model, policy, 50, rng=0),
        "session": lambda: policy.session(),
        "em": lambda: lm.EM(1).fit(logs, rng=0),
    }[what]
    for _ in range(150):  # until the allocator has what it keeps
        work()
    before, files = _resident(), len(os.listdir("/proc/self/fd"))
    for _ in range(150):
        work()
    assert _resident() - before < 8 * 1024
    assert len(os.listdir("/proc/self/fd")) <= files
