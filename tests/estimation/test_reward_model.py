"""What rewards depend on is found, against likelihoods of both reward models."""

import numpy as np
import pytest

import latentmdp as lm
from latentmdp.estimation.reward_model import choose_reward_model, preferred_reward_model
from latentmdp.fit import FitWarning
from latentmdp.testing import random_model


def with_rewards_of_the_next_state(seed: int) -> lm.LatentMDP:
    """Reward 1 with a probability that only the next state and the context decide."""
    plain = random_model(seed, contexts=2, states=4, horizon=15)
    good = np.random.default_rng(seed).uniform(0.05, 0.95, size=(2, 1, 1, 4))
    good = np.broadcast_to(good, plain.transitions.shape)
    return plain.replace(rewards=np.stack([1.0 - good, good], axis=-1), reward_values=[0.0, 1.0])


@pytest.mark.parametrize("seed", range(4))
def test_each_reward_model_is_told_from_its_logs(seed: int) -> None:
    by_pair = random_model(seed, contexts=2, states=4, horizon=15)
    for model, form in (
        (by_pair, "state-action"),
        (with_rewards_of_the_next_state(seed), "transition"),
    ):
        logs = lm.simulate(model, lm.UniformPolicy(), 2_000, rng=seed)
        assert preferred_reward_model(logs, np.eye(2)[logs.contexts]) == form


def test_the_gain_is_that_of_the_likelihood() -> None:
    """With known contexts the choice is BIC's between the two counted models."""
    model = with_rewards_of_the_next_state(0).replace(weights=[0.5, 0.5])
    for episodes in (10, 30, 100, 300):
        logs = lm.simulate(model, lm.UniformPolicy(), episodes, rng=1)
        fits = {
            form: [
                lm.EM(1, pseudo_counts=0.0, reward_model=form).fit(logs[logs.contexts == m])
                for m in range(2)
            ]
            for form in ("state-action", "transition")
        }
        gain, further = (
            sum(getattr(f, name) for f in fits["transition"])
            - sum(getattr(f, name) for f in fits["state-action"])
            for name in ("log_likelihood", "n_parameters")
        )
        shares = np.eye(2)[logs.contexts]
        seen_by_all = 2 * lm.EM(1, reward_model="transition").fit(logs).n_parameters
        seen_by_all -= 2 * lm.EM(1).fit(logs).n_parameters
        assert further <= seen_by_all
        price = 0.5 * seen_by_all * np.log(logs.n_steps)
        assert (preferred_reward_model(logs, shares) == "transition") == (gain > price)


def test_merged_episodes_count_as_often_as_they_came() -> None:
    model = with_rewards_of_the_next_state(1).replace(horizon=2)
    logs = lm.simulate(model, lm.UniformPolicy(), 3_000, rng=0).without_contexts()
    merged = logs.deduplicate()
    assert len(merged) < len(logs)
    for some in (logs, merged):
        assert preferred_reward_model(some, np.ones((len(some), 1))) == "transition"


def test_contexts_that_explain_next_to_nothing_do_no_harm() -> None:
    logs = lm.simulate(with_rewards_of_the_next_state(1), lm.UniformPolicy(), 500, rng=0)
    shares = np.full((500, 2), [1.0, 1e-300])
    assert preferred_reward_model(logs, shares) == "transition"


def test_what_rewards_depend_on_is_settled_by_a_quick_fit() -> None:
    rng = np.random.default_rng(0)
    for form, model in (
        ("state-action", random_model(2, contexts=2, states=4, horizon=15)),
        ("transition", with_rewards_of_the_next_state(2)),
    ):
        logs = [lm.simulate(model, lm.UniformPolicy(), 1_000, rng=0).without_contexts()]
        said: list[str] = []
        assert choose_reward_model(logs, 2, "auto", rng, report=said.append) == form
        assert said == [f"rewards depend on the {form.replace('-', ' and ')}"]


def test_what_is_given_about_rewards_stays() -> None:
    """Nothing is fitted, and no random number is drawn, where nothing is left open."""
    logs = [lm.simulate(random_model(0, horizon=5), lm.UniformPolicy(), 50, rng=0)]
    rng, untouched = np.random.default_rng(0), np.random.default_rng(0)
    assert choose_reward_model(logs, 2, "state-action", rng) == "state-action"
    assert choose_reward_model(logs, 2, "transition", rng) == "transition"
    one_value = [lm.Trajectories.from_lists([[0, 1]], [[0]], [[0]])]
    assert choose_reward_model(one_value, 2, "auto", rng) == "state-action"
    assert rng.random() == untouched.random()


def test_rewards_of_last_rows_are_used_without_next_states() -> None:
    """All is paid in the last row, whose next state no row tells: 0.6 after action 1, 0.2 after 0.

    The value of uniform actions is 0.4; of 2,000 episodes the standard error is 0.011.
    """
    rng = np.random.default_rng(0)
    n, T = 2_000, 3
    states, actions, paid = rng.integers(0, 3, (n, T)), rng.integers(0, 2, (n, T)), np.zeros((n, T))
    paid[:, -1] = rng.random(n) < np.where(actions[:, -1] == 1, 0.6, 0.2)
    table = {"episode": np.repeat(np.arange(n), T), "t": np.tile(np.arange(T), n)}
    columns = {"state": states, "action": actions, "reward": paid}
    logs = lm.Trajectories.from_table(table | {k: v.ravel() for k, v in columns.items()})
    fit = lm.initialize(None, logs, 1, rng=0)
    value = lm.evaluate(fit.model, lm.UniformPolicy()).mean
    assert abs(value - 0.4) < 4 * 0.011
    with pytest.warns(FitWarning, match="rewards of last steps"):
        lm.initialize(None, logs, 1, rng=0, reward_model="transition")
