"""The bonus by variance against its formula written out, its optimism, and what it explores."""

import gymnasium
import numpy as np
import pytest
from small_worlds import Opaque, small

import latentmdp as lm
from latentmdp.online import Counts
from latentmdp.online.empirical_model import EmpiricalModel
from latentmdp.testing import random_model
from latentmdp.worlds import Space

KINDS = {"default": lm.VarianceBonus(), "printed": lm.VarianceBonus.printed(0.1)}


def written_out(space, counts, bonus, episodes):
    """Q (M, H, S, A) by the formula of `online.bonus`, a row at a time; -inf where forbidden."""
    M, S, A, _ = space.dimensions
    H, r, allowed = space.horizon, space.reward_array, space.allowed_actions()
    eta, reach = bonus.failure_probability, space.largest_return
    iota = 0.0 if eta is None else 2 * np.log(2 * M * S * A * H * episodes / eta)
    cap = np.zeros(H + 1)
    for t in reversed(range(H)):
        stay = cap[t + 1] if not space.terminal.any() else max(cap[t + 1], 0.0)
        cap[t] = r.max() + space.discount * stay
    if eta is not None:
        cap[:] = space.discounted_steps * max(r.max(), 0.0)
    Q = np.full((M, H, S, A), -np.inf)
    for m in range(M):
        V = np.zeros(S)
        met = space.terminal | (counts.visits[m] >= 1.0).any(axis=1)
        for t in reversed(range(H)):
            V = space.discount * V
            span = np.ptp(V[met]) if met.any() else reach
            span = 0.0 if t == H - 1 else span
            for s, a in np.argwhere(allowed):
                n = counts.visits[m, s, a]
                N, mass = max(1.0, n), min(1.0, n)
                paid = counts.rewards[m, s, a]
                paid = (paid.sum(axis=0) if paid.ndim == 2 else paid) / N
                p = counts.transitions[m, s, a] / N
                seen = p / mass if n > 0 else p
                variance = mass * (seen @ V**2 - (seen @ V) ** 2)
                of_reward = max(0.0, paid @ r**2 - (paid @ r) ** 2)
                if eta is None:
                    c1, c2 = bonus.deviation, bonus.remainder
                    b = c1 * (np.sqrt(max(variance, 0) / N) + np.sqrt(of_reward / N))
                    b += c2 * (span + np.ptp(r)) / N
                else:
                    support = (p > 0).sum()
                    b = max(
                        bonus.deviation * np.sqrt(support * max(variance, 0) * iota / N),
                        bonus.remainder * S * iota * reach / N,
                    )
                    b += 2 * np.sqrt(of_reward * iota / N) + 5 * np.ptp(r) * iota / N
                Q[m, t, s, a] = min(cap[t], paid @ r + p @ V + b + (1 - mass) * cap[t])
            V = np.where(space.terminal, 0.0, Q[m, t].max(axis=1))
    return Q


def limited(values, horizon):
    """A model with forbidden actions, a terminal state and rewards of any sign."""
    model = random_model(1, contexts=2, states=9, actions=3, horizon=horizon, reward_values=values)
    allowed = np.ones((9, 3), bool)
    allowed[2, 1] = allowed[4, 0] = False
    allowed[8] = False
    return model.replace(allowed=allowed)


MODELS = {
    "plain": random_model(0, contexts=3, states=5, actions=2, horizon=6),
    "discounted": random_model(2, contexts=2, states=17, actions=4, horizon=7, discount=0.8),
    "costs": limited((-3.0, -1.0), 6),
    "costs without end": random_model(3, states=30, horizon=3, reward_values=(-2.0, -1.0)),
    "any sign": limited((-1e4, 1e4 + 1.0, 1e4 + 2.0), 5),
}


def planned(model, counts, bonus, episodes=500):
    space = Space.of(model)
    widths = bonus.widths(space, episodes)
    found = EmpiricalModel.begin(space, counts, widths, 0.0, 0.0, None, True)
    found.replan()
    S = space.n_states
    return found, np.swapaxes(found.optimistic.values[..., :S], -1, -2)


@pytest.mark.parametrize("form", ["arrays", "table"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", MODELS)
def test_values_are_the_formula(name, kind, form, monkeypatch):
    """Fractional counts from below one visit to many; in arrays and in tables."""
    model, bonus = MODELS[name], KINDS[kind]
    logs = lm.simulate(model, lm.UniformPolicy(), 40, rng=0)
    space = Space.of(model)
    if form == "table":
        monkeypatch.setattr(lm.online.empirical_model, "few_entries", lambda number: False)
    few = Counts.start(model, space, 0.03, "state-action")
    counts = Counts.start(logs, space, 0.0, "state-action") + few
    assert (counts.visits < 1.0).any()
    scale = 1.0 if kind == "default" else 1e5  # the printed one is saturated for long
    arrays = (counts.transitions, counts.rewards, counts.initial)
    counts = Counts.of_arrays(*(scale * array for array in arrays))
    _, values = planned(model, counts, bonus)
    expected = written_out(space, counts, bonus, 500)
    allowed = np.broadcast_to(space.allowed_actions(), values.shape)
    size = np.abs(expected[allowed]).max()
    np.testing.assert_allclose(values[allowed], expected[allowed], rtol=1e-6, atol=1e-7 * size)
    assert (values[:, :, space.terminal] == 0.0).all()
    if kind == "default":
        assert not np.allclose(expected[allowed], expected[allowed].max())


@pytest.mark.parametrize("name", MODELS)
def test_with_one_bonus_for_all_times_any_planner_is_no_less_optimistic(name):
    model = MODELS[name]
    logs = lm.simulate(model, lm.UniformPolicy(), 30, rng=1)
    counts = Counts.start(logs, Space.of(model), 0.0, "state-action")
    found, values = planned(model, counts, lm.VarianceBonus())
    optimistic = found.optimistic_model(counts)
    static = np.moveaxis(lm.planning.q_values(optimistic), -1, 0)
    allowed = np.broadcast_to(model.allowed, values.shape)
    assert (static[allowed] >= values[allowed] - 1e-9 * np.abs(values[allowed]).max()).all()


@pytest.mark.parametrize("seed", range(10))
def test_the_printed_bonus_is_optimistic(seed):
    """Values of the truth are never above, in any context, state, action or step; with enough
    visits they are not merely capped."""
    rng = np.random.default_rng(seed)
    model = random_model(seed, contexts=2, states=3, actions=2, horizon=3)
    for per_row in (10, 1_000, 1_000_000):
        drawn = [
            rng.multinomial(per_row, array).astype(float)
            for array in (model.transitions, model.reward_probs, model.initial)
        ]
        _, values = planned(model, Counts.of_arrays(*drawn), lm.VarianceBonus.printed())
        truth = np.moveaxis(lm.planning.q_values(model), -1, 0)
        assert (values >= truth - 1e-12).all()
    assert (values < 0.5 * (values.max() + truth)).mean() > 0.5


def test_the_most_that_can_be_earned():
    def highest(values, ends, discount=1.0):
        allowed = np.ones((2, 1), bool)
        allowed[1] = not ends
        return Space(1, 2, 1, values, 3, discount, allowed).highest_returns.tolist()

    assert highest((0.0, 2.0), False) == highest((-1.0, 2.0), True) == [6.0, 4.0, 2.0]
    assert highest((-2.0, -1.0), False) == [-3.0, -2.0, -1.0]
    assert highest((-2.0, -1.0), True) == [-1.0, -1.0, -1.0]
    assert highest((1.0,), True, 0.5) == [1.75, 1.5, 1.0]


@pytest.mark.parametrize("contexts", ["revealed", "inferred"])
def test_step_by_step_is_the_compiled_loop(contexts, tmp_path):
    """The same rounds where the world is no model, resumed from a checkpoint or not."""
    model = small(4)
    start = None if contexts == "revealed" else lm.simulate(model, lm.UniformPolicy(), 20, rng=3)
    learner = lm.LUCRL(contexts=contexts, start=start, replan="lazy")
    fast, slow = (learner.run(world, 150, rng=2) for world in (model, Opaque(model)))
    np.testing.assert_array_equal(fast.returns, slow.returns)
    np.testing.assert_array_equal(fast.counts.transitions, slow.counts.transitions)
    np.testing.assert_array_equal(fast.policy.vectors, slow.policy.vectors)


def test_doubling_plans_when_a_count_reaches_a_power_of_two():
    model, at = small(), []

    class Counting:
        def plan(self, model):
            at.append(learning.empirical.counts().visits)
            return lm.QMDP().plan(model)

    learner = lm.LUCRL(planner=Counting(), replan="doubling")
    learning = learner.begin(lm.worlds.as_world(model), 300, 0)
    before = learning.empirical.counts().visits
    for _ in range(300):
        plans = len(at)
        learning.plan()
        now = learning.empirical.counts().visits
        powers = [np.floor(np.log2(np.maximum(n, 0.5))) for n in (before, now)]
        assert (len(at) > plans) == (plans == 0 or bool((powers[1] > powers[0]).any()))
        if len(at) > plans:
            before = now
        learning.absorb(learning.play(1))
    assert 10 < len(at) < 150


def test_bad_variance_bonuses_are_refused():
    for name in ("deviation", "remainder"):
        with pytest.raises(ValueError, match=name):
            lm.VarianceBonus(**{name: -1.0})
    with pytest.raises(ValueError, match="failure_probability"):
        lm.VarianceBonus.printed(0.0)
    with pytest.raises(ValueError, match="replan must be"):
        lm.LUCRL(replan="doubled")


def permuted(name, order, **options):
    env = gymnasium.make(name, **options)
    table = env.unwrapped.P
    env.unwrapped.P = {s: {a: row[b] for a, b in enumerate(order)} for s, row in table.items()}
    return env


def test_costs_and_the_cliff():
    """A rare large cost and deterministic moves: a bonus by the range stays at -58."""
    cliffs = [permuted("CliffWalking-v1", order) for order in ([0, 1, 2, 3], [2, 1, 0, 3])]
    model = lm.envs.tabular_model(cliffs, horizon=60)
    best = lm.evaluate(model, lm.QMDP().plan(model).policy, 2_000, rng=0).mean
    run = lm.LUCRL().run(model, 1_500, rng=0)
    assert run.trailing_return(300) > best - 2.5
