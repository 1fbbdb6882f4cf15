"""The linear relaxation: real policies satisfy it, and its prices bound them all."""

import numpy as np
import pytest

from latentmdp import testing
from latentmdp.planning.memoryless.cadp import MemorylessProblem
from latentmdp.planning.memoryless.mip import Program, in_background


def occupancies(problem: MemorylessProblem, policy: np.ndarray) -> np.ndarray:
    """y_t(s, a, m) of a policy (H or 1, S), one step at a time."""
    H, S, A, M = problem.sizes
    y, now = np.zeros((H, S, A, M)), problem.start
    for t in range(H):
        rule = policy[t % len(policy)]
        y[t, np.arange(S), rule] = now
        now = problem.discount * np.einsum("sam,msan->nm", y[t], problem.model.transitions)
    return y


def example(seed: int, stationary: bool) -> tuple[MemorylessProblem, np.ndarray]:
    model = testing.random_model(
        seed, contexts=2, states=3, actions=2, horizon=3, zeros=0.3, bonus=True, discount=0.8
    )
    problem = MemorylessProblem.of(model, stationary)
    policy = np.random.default_rng(seed).integers(2, size=problem.shape)
    return problem, policy


@pytest.mark.parametrize("stationary", [False, True])
@pytest.mark.parametrize("seed", range(10))
def test_every_policy_is_a_feasible_point_worth_its_value(seed: int, stationary: bool) -> None:
    problem, policy = example(seed, stationary)
    program = Program.of(problem)
    y = occupancies(problem, policy)
    shares = y / program.reach[:, :, None, :]
    point = np.concatenate([shares.ravel(), np.eye(2)[policy].ravel()])
    np.testing.assert_allclose(program.flow @ point, program.inflow, atol=1e-12)
    assert (program.coupling @ point <= 1e-12).all()
    assert program.objective @ point == pytest.approx(problem.value(policy), abs=1e-12)


@pytest.mark.parametrize("stationary", [False, True])
@pytest.mark.parametrize("seed", range(10))
def test_prices_bound_every_policy(seed: int, stationary: bool) -> None:
    problem, policy = example(seed, stationary)
    program = Program.of(problem)
    prices, actions = program.relax(time_limit=60.0)
    assert (prices >= 0.0).all()
    assert actions is not None
    assert actions.shape == problem.shape
    y = occupancies(problem, policy)
    charges = np.einsum("tsm,tsam->tsa", program.reach, prices)
    most = charges.sum(axis=0).max(axis=1) if stationary else charges.max(axis=2)
    bound = float(((problem.rewards - prices) * y).sum() + most.sum())
    assert problem.value(policy) <= bound + 1e-12


def test_no_time_means_no_prices() -> None:
    problem, _ = example(0, stationary=False)
    prices, actions = Program.of(problem).relax(time_limit=0.0)
    np.testing.assert_array_equal(prices, np.zeros(problem.sizes))
    assert actions is None


def test_an_error_in_the_background_is_raised() -> None:
    def fail() -> None:
        raise ValueError("inside")

    with pytest.raises(ValueError, match="inside"):
        in_background(fail)
