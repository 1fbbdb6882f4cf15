"""HSVI and PBVI without an end: bounds against long horizons, policies that attain them."""

import math

import numpy as np
import pytest

import latentmdp as lm
from latentmdp.testing import random_model

KINDS = {
    "plain": {},
    "impossible transitions": {"zeros": 0.4, "contexts": 3},
    "forbidden": {"forbidden": 0.4, "actions": 3},
    "terminal": {"n_terminal": 1, "states": 4},
    "costs": {"reward_values": (-3.0, -1.0), "forbidden": 0.3},
    "table": {"as_table": True, "reward_model": "transition", "n_terminal": 1, "forbidden": 0.3},
    "bonus": {"bonus": True, "contexts": 4},
}


def without_end(seed: int, discount: float = 0.9, **kind: object) -> lm.LatentMDP:
    return random_model(seed, **{"horizon": None, "discount": discount, "states": 3, **kind})


def long_horizon(model: lm.LatentMDP) -> tuple[float, float]:
    """Bounds on V* from a horizon after which little is left, and what may be earned beyond it."""
    H = math.ceil(math.log(1e-3) / math.log(model.discount))
    plan = lm.HSVI(gap=1e-3, time_limit=5.0).plan(model.replace(horizon=H))
    rewards = model.planning_rewards()
    left = model.discount**H / (1.0 - model.discount)
    return plan.lower + left * min(rewards.min(), 0.0), plan.upper + left * max(rewards.max(), 0.0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(2))
def test_bounds_enclose_those_of_a_long_horizon(kind: str, seed: int) -> None:
    model = without_end(seed, **KINDS[kind])
    plan = lm.HSVI(gap=1e-3, time_limit=20.0).plan(model)
    low, high = long_horizon(model)
    assert plan.converged
    assert plan.lower <= high + 1e-9
    assert low <= plan.upper + 1e-9
    points = lm.PBVI(beliefs=60).plan(model)
    assert points.lower <= plan.upper + 1e-9
    assert plan.lower <= points.upper + 1e-9


def shortfall(model: lm.LatentMDP, policy: lm.AlphaVectorPolicy, seed: int) -> float:
    """The largest V(b) - (r(b, a) + discount E V(b')) over beliefs that an episode can meet.

    V(b) is the best vector's value and a its label. If it is nowhere positive, the policy earns at
    least V everywhere: V <= L V for the policy's backup L, which is monotone.
    """
    rng = np.random.default_rng(seed)
    rewards, table = np.moveaxis(model.planning_rewards(), 0, -1), model.outcomes
    worst = -np.inf
    for s in np.flatnonzero(~model.terminal & (model.weights @ model.initial > 0.0)):
        belief = model.weights * model.initial[:, s]
        belief /= belief.sum()
        for _ in range(60):
            a = policy.action(0, s, belief)
            assert model.allowed[s, a]
            row = s * model.n_actions + a
            value, chances, followers = float(belief @ rewards[s, a]), [], []
            for k in range(table.starts[row], table.starts[row + 1]):
                mass = belief * table.probs[k]
                n = int(table.next_state[k])
                chances.append(mass.sum())
                followers.append((n, mass / mass.sum() if mass.sum() > 0.0 else belief))
                if mass.sum() > 0.0 and not model.terminal[n]:
                    value += model.discount * mass.sum() * policy.value(0, n, mass / mass.sum())
            worst = max(worst, policy.value(0, s, belief) - value)
            s, belief = followers[rng.choice(len(chances), p=np.array(chances) / sum(chances))]
            if model.terminal[s]:
                break
    return worst


@pytest.mark.parametrize("kind", KINDS)
def test_the_policy_attains_its_lower_bound(kind: str) -> None:
    model = without_end(5, **KINDS[kind])
    for planner in (lm.HSVI(gap=1e-4, time_limit=5.0), lm.PBVI(beliefs=50)):
        plan = planner.plan(model)
        joint = model.weights[:, None] * model.initial
        first = [
            joint[:, s].sum() * plan.policy.value(0, s, joint[:, s] / joint[:, s].sum())
            for s in np.flatnonzero((joint.sum(axis=0) > 0.0) & ~model.terminal)
        ]
        assert plan.lower - 1e-9 <= sum(first) + model.initial_value() <= plan.upper + 1e-9
        assert max(shortfall(model, plan.policy, seed) for seed in range(5)) <= 1e-9


def test_every_bound_in_the_history_holds_and_none_gets_worse() -> None:
    model = without_end(2, 0.95, contexts=4)
    plan = lm.HSVI(gap=0.01, time_limit=5.0).plan(model)
    lowers, uppers = np.array(plan.history)[:, 1], np.array(plan.history)[:, 2]
    assert (np.diff(lowers) >= 0.0).all()
    assert (np.diff(uppers) <= 0.0).all()
    low, high = long_horizon(model)
    assert lowers.max() <= high + 1e-9
    assert uppers.min() >= low - 1e-9
    assert lowers[-1] > lowers[0]
    assert uppers[-1] < uppers[0]


def test_four_experts_and_two_states() -> None:
    """The size of published conservation problems with a hidden model."""
    rng = np.random.default_rng(0)
    model = lm.LatentMDP.from_amounts(
        rng.dirichlet(np.ones(2), (4, 2, 4)),
        np.array([[0.0, -5.0, -7.0, -9.0], [20.0, 15.0, 13.0, 11.0]]),
        initial=0,
        horizon=None,
        discount=0.9,
    )
    plan = lm.HSVI(gap=1e-3, time_limit=20.0).plan(model)
    assert plan.converged
    assert plan.policy.actions.size <= 20_000


def test_a_grid_has_a_guarantee() -> None:
    model = without_end(3, 0.8, contexts=2)
    plan = lm.PBVI(spacing=0.02).plan(model)
    best = lm.HSVI(gap=1e-3, time_limit=5.0).plan(model)
    rho1, rho2 = plan.guarantee
    assert rho1 == 1.0
    assert best.upper - plan.lower <= rho2
    assert rho2 == pytest.approx(0.02 / 0.2**2, rel=1e-3)


def test_one_context_is_solved_at_once() -> None:
    model = without_end(4, contexts=1)
    plan = lm.HSVI(gap=1e-6).plan(model)
    informed = lm.QMDP().plan(model).upper
    assert plan.lower == pytest.approx(informed, rel=1e-8)
