"""EM against oracles: enumerated likelihoods, closed forms, fixed points and a linear map."""

import dataclasses
import warnings
from types import SimpleNamespace

import numpy as np
import pytest

import latentmdp as lm
from latentmdp.errors import TrajectoryError
from latentmdp.estimation import choose_contexts, em
from latentmdp.fit import FitWarning
from latentmdp.testing import posterior, random_model, trajectory_probability

pytestmark = pytest.mark.filterwarnings("ignore::latentmdp.fit.FitWarning")


def play(model: lm.LatentMDP, episodes: int, seed: int = 0, horizon: int = 0) -> lm.Trajectories:
    longer = model.replace(horizon=horizon or model.horizon)
    return lm.simulate(longer, lm.UniformPolicy(), episodes, rng=seed)


def disjoint_model(horizon: int = 12) -> lm.LatentMDP:
    """Two contexts that no episode can mix up: one moves among states 0-1, the other 2-3."""
    T = np.zeros((2, 4, 2, 4))
    T[0, :, 0, :2], T[0, :, 1, :2] = (0.7, 0.3), (0.2, 0.8)
    T[1, :, 0, 2:], T[1, :, 1, 2:] = (0.6, 0.4), (0.1, 0.9)
    R = np.stack([np.full((4, 2), 0.2), np.full((4, 2), 0.7)])
    return lm.LatentMDP(T, R, weights=[0.3, 0.7], initial=np.full(4, 0.25), horizon=horizon)


@pytest.mark.parametrize("form", ["state-action", "transition"])
@pytest.mark.parametrize("shared", [False, True])
def test_log_likelihood_is_that_of_the_model_returned(form: str, shared: bool) -> None:
    model = random_model(0, contexts=2, horizon=4, reward_model=form)
    logs = play(model, 300)
    fit = lm.EM(2, pseudo_counts=0.5, reward_model=form, shared_rewards=shared).fit(logs, rng=0)
    expected = sum(np.log(trajectory_probability(fit.model, s, a, z)) for s, a, z, _ in logs)
    assert fit.log_likelihood == pytest.approx(expected, rel=1e-9)
    beliefs = [posterior(fit.model, s, a, z) for s, a, z, _ in logs]
    np.testing.assert_allclose(fit.responsibilities, beliefs, atol=1e-8)
    assert fit.model.reward_model == form
    if shared:
        assert np.array_equal(fit.model.reward_probs[0], fit.model.reward_probs[1])


@pytest.mark.parametrize("strengths", [(0.0, None), (3.0, None), (3.0, 0.2)])
@pytest.mark.parametrize("seed", range(4))
def test_the_objective_never_falls(strengths: tuple[float, float | None], seed: int) -> None:
    model = random_model(seed, contexts=3, states=4, horizon=8)
    k_T, k_R = strengths
    em = lm.EM(
        3, pseudo_counts=k_T, reward_pseudo_counts=k_R, restarts=2, initial="own", tolerance=1e-6
    )
    fit = em.fit(play(model, 400, seed), rng=seed)
    steps = np.diff(fit.history)
    assert len(fit.history) > 5
    assert (steps >= -1e-9 * abs(fit.history[0])).all()


def test_one_context_is_the_counting_estimate() -> None:
    model = random_model(1, contexts=1, states=3, horizon=5)
    logs = play(model, 500)
    fit = lm.EM(1, pseudo_counts=0.0).fit(logs)
    states, actions, rewards = logs.as_arrays()
    counts = np.zeros((3, 2, 3, 2))
    np.add.at(counts, (states[:, :-1], actions, states[:, 1:], rewards), 1.0)
    totals = counts.sum(axis=(2, 3))[..., None]
    np.testing.assert_allclose(fit.model.transitions[0], counts.sum(axis=3) / totals, atol=1e-9)
    np.testing.assert_allclose(fit.model.reward_probs[0], counts.sum(axis=2) / totals, atol=1e-9)
    first = np.bincount(states[:, 0], minlength=3) / len(logs)
    np.testing.assert_allclose(fit.model.initial[0], first)
    assert fit.converged


def test_separated_contexts_are_counted_apart() -> None:
    model = disjoint_model()
    logs = play(model, 400)
    fit = lm.EM(2, pseudo_counts=0.0, restarts=5).fit(logs.without_contexts(), rng=0)
    assert lm.clustering_accuracy(logs.contexts, fit.labels) == 1.0
    apart = [lm.EM(1, pseudo_counts=0.0).fit(logs[logs.contexts == m]).model for m in range(2)]
    aligned = fit.model.align(model)
    for m in range(2):
        mine, theirs = aligned.transitions[m], apart[m].transitions[0]
        rows = [0, 1] if m == 0 else [2, 3]
        np.testing.assert_allclose(mine[rows], theirs[rows], atol=1e-6)
    share = np.bincount(logs.contexts) / len(logs)
    np.testing.assert_allclose(aligned.weights, share, atol=1e-6)


def test_the_estimate_is_a_fixed_point() -> None:
    model = random_model(5, contexts=2, states=3, horizon=10)
    logs = play(model, 500)
    em = lm.EM(2, pseudo_counts=1.0, initial="own", tolerance=1e-9)
    fit = em.fit(logs, rng=0)
    again = em.fit(logs, start=fit)
    assert lm.model_error(fit.model, again.model) < 1e-3
    assert again.log_likelihood == pytest.approx(fit.log_likelihood, abs=1e-4)


def test_multiplicities_and_several_logs_change_nothing() -> None:
    model = random_model(6, contexts=2, states=3, horizon=3)
    logs = play(model, 2000).without_contexts()
    em = lm.EM(2, pseudo_counts=1.0, restarts=1, initial="own")
    whole = em.fit(logs, start=model)
    for same in (logs.deduplicate(), [logs[:700], logs[700:].deduplicate()]):
        other = em.fit(same, start=model)
        np.testing.assert_allclose(other.model.transitions, whole.model.transitions, atol=1e-9)
        assert other.log_likelihood == pytest.approx(whole.log_likelihood)


def test_known_weights_and_initial_distributions_stay() -> None:
    model = random_model(7, contexts=2, states=3, horizon=6)
    logs = play(model, 300)
    known = lm.EM(2, weights=[0.4, 0.6], initial=model.initial, pseudo_counts=1.0)
    fit = known.fit(logs, rng=0)
    np.testing.assert_allclose(fit.model.weights, [0.4, 0.6])
    np.testing.assert_allclose(fit.model.initial, model.initial)
    shared = lm.EM(2, initial="shared", pseudo_counts=1.0).fit(logs, rng=0).model.initial
    first = np.bincount(logs.as_arrays()[0][:, 0], minlength=3) / len(logs)
    np.testing.assert_allclose(shared, [first, first])


def test_own_initial_distributions_are_found_where_they_differ() -> None:
    equal = lm.make("separated", contexts=2, states=4, actions=2, horizon=25, delta=1.0, rng=1)
    model = equal.replace(initial=[[0.8, 0.1, 0.1, 0.0], [0.1, 0.1, 0.0, 0.8]])
    fit = lm.EM(2, shared_rewards=True).fit(play(model, 500), rng=0)
    error = np.abs(fit.model.align(model).initial - model.initial).max()
    assert error < 5 * 0.5 / np.sqrt(0.5 * 500)  # five standard errors of a frequency
    same = lm.EM(2, shared_rewards=True).fit(play(equal, 500), rng=0).model.initial
    assert np.array_equal(same[0], same[1])


def test_starts_of_every_kind_lead_to_the_same_contexts() -> None:
    model = lm.make("separated", contexts=2, states=4, actions=2, horizon=20, delta=0.8, rng=3)
    logs = play(model, 600)
    hidden = logs.without_contexts()
    em = lm.EM(2, pseudo_counts=1.0, restarts=3)
    reference = em.fit(hidden, start=model)
    shares = np.eye(2)[logs.contexts] * 0.8 + 0.1
    for start in ("pairs", "random", reference, logs.contexts, shares, [model, "random"], None):
        fit = em.fit(hidden, start=start, rng=0)
        assert lm.model_error(reference.model, fit.model) < 0.05


def test_the_same_seed_gives_the_same_fit_for_any_number_of_threads() -> None:
    model = random_model(8, contexts=3, states=4, horizon=10)
    logs = play(model, 500)
    fits = [lm.EM(3, restarts=3, threads=t).fit(logs, rng=5) for t in (1, 3)]
    assert fits[0].model == fits[1].model
    assert fits[0].history == fits[1].history


def test_each_kind_of_row_has_its_own_pseudo_counts() -> None:
    """At the fixed point rows are (N_m + k pooled) / (sum N_m + k), k_T and k_R apart."""
    model = random_model(8, contexts=2, states=3, horizon=10)
    logs = play(model, 300)
    em = lm.EM(2, pseudo_counts=5.0, reward_pseudo_counts=0.3, tolerance=1e-10)
    fit = em.fit(logs, start=model)
    states, actions, rewards = logs.as_arrays()
    before, after = states[:, :-1], states[:, 1:]
    for table, seen, k in (
        (fit.model.transitions, after, 5.0),
        (fit.model.reward_probs, rewards, 0.3),
    ):
        counts = np.zeros(table.shape)
        for m in range(2):
            shares = np.broadcast_to(fit.responsibilities[:, m, None], before.shape)
            np.add.at(counts[m], (before, actions, seen), shares)
        pooled = counts.sum(axis=0) / counts.sum(axis=(0, 3))[..., None]
        rows = counts + k * pooled
        assert np.allclose(table, rows / rows.sum(axis=-1, keepdims=True), atol=1e-5)


def test_pseudo_counts_shrink_towards_the_pooled_model() -> None:
    model = random_model(9, contexts=2, states=3, horizon=10)
    logs = play(model, 200)
    pooled = lm.EM(1).fit(logs).model.transitions[0]
    spread = [
        np.abs(lm.EM(2, pseudo_counts=k).fit(logs, start=model).model.transitions - pooled).sum()
        for k in (0.0, 10.0, 1e3, 1e7)
    ]
    assert spread == sorted(spread, reverse=True)
    assert spread[-1] < 1e-2


def test_prediction_of_new_episodes() -> None:
    model = disjoint_model()
    fit = lm.EM(2, restarts=3).fit(play(model, 300), rng=0)
    new = play(model, 200, seed=9)
    assert lm.clustering_accuracy(new.contexts, fit.predict(new).argmax(axis=1)) == 1.0
    never = lm.Trajectories.from_arrays(
        [[0, 2, 0]], [[0, 0]], [[0, 0]], n_states=4, reward_values=model.reward_values
    )
    assert np.isfinite(fit.predict(never)).all()


def test_rows_never_visited_are_named_and_uniform() -> None:
    rng = np.random.default_rng(0)
    states, actions = rng.integers(3, size=(80, 7)), np.zeros((80, 6), int)
    rewards = rng.integers(2, size=(80, 6))
    logs = lm.Trajectories.from_arrays(states, actions, rewards, n_states=5, n_actions=2)
    with pytest.warns(FitWarning, match=r"no episode visits \(state, action\) \(0, 1\)"):
        fit = lm.EM(2, pseudo_counts=1.0, restarts=2).fit(logs, rng=0)
    np.testing.assert_allclose(fit.model.transitions[:, 3], 0.2)
    np.testing.assert_allclose(fit.model.transitions[:, :, 1], 0.2)
    np.testing.assert_allclose(fit.model.reward_probs[0, 4, 0], fit.model.reward_probs[1, 0, 1])


def test_reaching_the_cap_is_said_aloud() -> None:
    model = random_model(10, contexts=3, states=4, horizon=10)
    with pytest.warns(FitWarning, match="not converged after max_iter=3"):
        fit = lm.EM(3, pseudo_counts=0.0, max_iter=3, restarts=1).fit(play(model, 300), rng=0)
    assert not fit.converged


def test_a_start_may_know_more_states_than_the_logs_show() -> None:
    model = random_model(14, contexts=2, states=5, horizon=6)
    logs = play(model, 300)
    states, actions, rewards = logs[np.array([4 not in s for s, *_ in logs])].as_arrays()
    fewer = lm.Trajectories.from_arrays(states, actions, rewards)
    assert fewer.n_states == 4
    fit = lm.EM(2, pseudo_counts=1.0).fit(fewer, start=model, rng=0)
    assert fit.model.n_states == 5
    declared = lm.Trajectories.from_arrays(states, actions, rewards, n_states=5)
    assert fit.model == lm.EM(2, pseudo_counts=1.0).fit(declared, start=model, rng=0).model


def test_logs_that_cannot_be_fitted_are_refused() -> None:
    model = random_model(11, horizon=5)
    logs = play(model, 5)
    with pytest.raises(TrajectoryError, match="5 episodes cannot show n_contexts=6"):
        lm.EM(6).fit(logs)
    with pytest.raises(TrajectoryError, match="too short: the longest has 1 step, 2 are needed"):
        lm.EM(2).fit(play(model, 50, horizon=1))
    with pytest.raises(TrajectoryError, match="hold no episode"):
        lm.EM(2).fit(logs[:0])
    with pytest.raises(TypeError, match=r"logs\[1\] must be Trajectories or LogFiles, got int"):
        lm.EM(2).fit([logs, 3])
    small = random_model(11, states=2, horizon=5)
    with pytest.raises(TrajectoryError, match="state 2 is out of range"):
        lm.EM(2).fit(logs, start=small)
    other = lm.Trajectories.from_arrays([[0, 0, 0]], [[0, 0]], [[0, 0]], reward_values=(0, 5))
    with pytest.raises(TrajectoryError, match="differ in reward_values"):
        lm.EM(2).fit([logs, other])


def test_too_little_data_warns_and_stays_finite() -> None:
    model = random_model(12, contexts=4, states=5, horizon=3)
    logs = play(model, 6)
    with pytest.warns(FitWarning, match="more than these logs can bear"):
        fit = lm.EM(4, restarts=3).fit(logs, rng=0)
    expected = sum(np.log(trajectory_probability(fit.model, *episode[:3])) for episode in logs)
    assert fit.log_likelihood == pytest.approx(expected)
    belief = [posterior(fit.model, *episode[:3]) for episode in logs]
    np.testing.assert_allclose(fit.responsibilities, belief, atol=1e-9)
    with pytest.warns(FitWarning, match="no episode has more than 2 steps"):
        lm.EM(2, restarts=2).fit(play(model, 100, horizon=2), rng=0)


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("seed", range(6))
def test_two_episodes_are_enough_for_two_contexts(seed: int) -> None:
    logs = play(random_model(seed, contexts=2, horizon=4), 2, seed=seed)
    for fit in (lm.EM(2).fit(logs, rng=seed), lm.initialize(None, logs, 2, rng=seed)):
        expected = sum(np.log(trajectory_probability(fit.model, s, a, z)) for s, a, z, _ in logs)
        assert fit.log_likelihood == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("contexts", [3, 5])
def test_more_contexts_than_kinds_of_transitions(contexts: int) -> None:
    """A coin of random bias, one state and one action: two kinds of transitions in all."""
    coins = np.array([0.1, 0.5, 0.9]).reshape(3, 1, 1)
    model = lm.LatentMDP(np.ones((3, 1, 1, 1)), coins, horizon=6)
    logs = play(model, 200)
    fit = lm.EM(contexts, pseudo_counts=0.5).fit(logs.without_contexts(), rng=0)
    expected = sum(np.log(trajectory_probability(fit.model, s, a, z)) for s, a, z, _ in logs)
    assert fit.log_likelihood == pytest.approx(expected, rel=1e-9)
    chosen = lm.initialize(None, logs.without_contexts(), n_contexts="auto", rng=0)
    assert chosen.model.n_contexts in (2, 3)


def test_arguments_are_checked() -> None:
    logs = play(random_model(13, horizon=4), 20)
    with pytest.raises(ValueError, match="n_contexts"):
        lm.EM(0)
    with pytest.raises(ValueError, match="pseudo_counts must"):
        lm.EM(2, pseudo_counts=-1.0)
    with pytest.raises(ValueError, match="reward_pseudo_counts"):
        lm.EM(2, pseudo_counts=1.0, reward_pseudo_counts=-1.0)
    with pytest.raises(ValueError, match="goes with a number"):
        lm.EM(2, reward_pseudo_counts=1.0)
    with pytest.raises(ValueError, match="reward_model"):
        lm.EM(2, reward_model="both")
    with pytest.raises(ValueError, match="tolerance"):
        lm.EM(2, tolerance=0.0)
    with pytest.raises(ValueError, match="weights"):
        lm.EM(2, weights=[0.5, 0.6])
    with pytest.raises(ValueError, match="initial"):
        lm.EM(2, initial=[0.5, 0.5]).fit(logs)
    with pytest.raises(ValueError, match="start must be"):
        lm.EM(2).fit(logs, start="spectral")
    with pytest.raises(ValueError, match=r"start must be labels \(20,\)"):
        lm.EM(2).fit(logs, start=np.zeros((5, 2)))
    with pytest.raises(ValueError, match="n_contexts is 2"):
        lm.EM(2).fit(logs, start=random_model(0, contexts=3, horizon=4))


def test_a_clean_fit_warns_of_nothing() -> None:
    model = lm.make("separated", contexts=2, states=4, actions=2, horizon=20, delta=0.8, rng=3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lm.EM(2, restarts=2).fit(play(model, 600), rng=0)


def test_groups_of_chance_are_said_to_be_so() -> None:
    """One context fitted by three: several optima, whose groups have nothing in common."""
    model = lm.make("random", contexts=1, states=3, actions=2, horizon=6, rng=0)
    with pytest.warns(FitWarning, match="other groups explain these logs about as well"):
        lm.EM(3).fit(play(model, 80), rng=0)


def test_the_settings_are_shown_and_stay() -> None:
    assert repr(lm.EM(3)) == "EM(3)"
    em = lm.EM(2, pseudo_counts=4.0, shared_rewards=True, weights=np.array([0.25, 0.75]))
    assert repr(em) == "EM(2, pseudo_counts=4.0, shared_rewards=True, weights=[0.25, 0.75])"
    with pytest.raises(dataclasses.FrozenInstanceError):
        em.restarts = 3  # type: ignore[misc]


@pytest.mark.parametrize("start", ["pairs", "random", None, "model"])
def test_one_context_has_one_start(start: str | None) -> None:
    """Whatever is asked for, one context is the pooled model."""
    model = random_model(1, contexts=1, states=3, horizon=5)
    logs = play(model, 100)
    fit = lm.EM(1).fit(logs, start=model if start == "model" else start)
    assert fit.model == lm.EM(1).fit(logs).model
    with pytest.raises(ValueError, match="start must be"):
        lm.EM(1).fit(logs, start="spectral")


RATES = np.array([0.999, 0.9, 0.5])
TOP = np.array([1.0, -2.0, 3.0])


@pytest.fixture
def climb(monkeypatch):
    """EM's loop over a linear map with a known fixed point, in place of E-step and M-step."""
    monkeypatch.setattr(em, "_m_step", lambda _, x, *before: (TOP + RATES * (x - TOP),))
    episodes = SimpleNamespace(expected_counts=lambda x, _: (x, -float(np.sum((x - TOP) ** 2))))

    def climb(tolerance, max_maps, repaired=lambda x, _: x):
        likelihood = SimpleNamespace(
            episodes=episodes,
            engine=None,
            tables=lambda x: x,
            repaired=repaired,
            log_prior=lambda _: 0.0,
        )
        return em.climb(likelihood, (np.zeros(3),), tolerance, max_maps)

    return climb


def test_reaches_the_fixed_point_of_a_linear_map_in_far_fewer_maps(climb) -> None:
    found = climb(1e-16, 10_000)
    assert found.converged
    np.testing.assert_allclose(found.point[0], TOP, atol=1e-3)
    assert found.n_maps < 300  # the plain iteration needs log(1e-3) / log(0.999) > 6,900
    assert all(b >= a for a, b in zip(found.history, found.history[1:]))
    assert found.history[-1] == found.objective


def test_a_cap_is_not_convergence(climb) -> None:
    found = climb(1e-16, 7)
    assert not found.converged
    assert found.n_maps == 7


def test_extrapolations_that_lose_are_refused(climb) -> None:
    """Candidates are sent to a terrible point: the iteration falls back on the plain map."""
    found = climb(1e-6, 200, lambda x, _: (TOP + 1e6,))
    assert all(b >= a for a, b in zip(found.history, found.history[1:]))
    assert np.abs(found.point[0] - TOP).max() < 3.0


def test_a_cue_in_the_first_state_tells_contexts_apart() -> None:
    """A first state and one reward, much later, are all that differs: only together they show it.

    Where every context has both cues alike, held-out likelihood must not tell first states apart.
    """
    model = lm.make("cue", contexts=3, horizon=5)
    fit = lm.EM(3).fit(play(model, 400), rng=0)
    assert "initial" not in fit.shared
    found = fit.model.align(model)
    assert found.initial[np.eye(3, model.n_states, dtype=bool)].min() > 0.95
    same = lm.make("separated", contexts=2, states=4, actions=2, horizon=12, delta=1.0, rng=1)
    same = same.replace(initial=np.full((2, 4), 0.25))
    assert "initial" in lm.EM(2).fit(play(same, 300), rng=0).shared


def test_the_number_of_contexts_follows_from_cues() -> None:
    logs = play(lm.make("cue", contexts=2, horizon=4), 200)
    assert choose_contexts(logs, behaviour="shared", rng=0).n_contexts == 2
    told = choose_contexts(logs, behaviour="shared", shared_initial=True, rng=0)
    assert told.n_contexts == 1  # one reward an episode says nothing by itself


@pytest.mark.parametrize(
    "settings",
    [{"initial": "mine"}, {"shared_initial": "perhaps"}],
    ids=lambda one: next(iter(one)),
)
def test_a_word_for_first_states_that_is_none_is_refused(settings: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=next(iter(settings))):
        lm.EM(2, **settings)
