"""Pair moments: no signal without contexts, the right subspace with them."""

import numpy as np

import latentmdp as lm
from latentmdp.estimation.episodes import Episodes
from latentmdp.estimation.starts import PairMoments, context_points


def episodes_of(model: lm.LatentMDP, number: int, seed: int = 0) -> Episodes:
    logs = lm.simulate(model, lm.UniformPolicy(), number, rng=seed).without_contexts()
    return Episodes([unpaid(logs)])


def unpaid(logs: lm.Trajectories) -> lm.Trajectories:
    """The same steps without rewards."""
    return logs._with(rewards=np.zeros_like(logs.rewards), reward_values=np.zeros(1))


def whitened(moments: PairMoments) -> np.ndarray:
    return moments.product(np.eye(moments.row.size))


def spectrum(moments: PairMoments) -> tuple[np.ndarray, float]:
    """Eigenvalues, largest first, in units in which noise has unit variance, and its edge."""
    scale = moments._scale()[moments.row]
    values = np.linalg.eigvalsh(whitened(moments) / np.outer(scale, scale))[::-1]
    dimensions = moments.row.size - moments.n_rows
    return values, max(2.0 * np.sqrt(max(dimensions, 1)), -values[-1])


def test_innovations_sum_to_zero_in_every_row() -> None:
    model = lm.make("separated", contexts=2, states=4, actions=2, horizon=10, delta=0.5, rng=0)
    moments = PairMoments(episodes_of(model, 200))
    U = whitened(moments) * np.outer(moments.root, moments.root)
    for row in range(moments.n_rows):
        np.testing.assert_allclose(U[moments.row == row].sum(axis=0), 0.0, atol=1e-8)
        np.testing.assert_allclose(U[:, moments.row == row].sum(axis=1), 0.0, atol=1e-8)
    np.testing.assert_allclose(U, U.T, atol=1e-8)


def test_rows_of_which_all_episodes_are_held_out() -> None:
    """One episode stays in a state that no other visits; in one fold it is left out."""
    T = np.zeros((2, 3, 2, 3))
    T[:, :2, :, :2] = np.array([[0.3, 0.7], [0.8, 0.2]])[:, None, None]
    T[:, 2, :, 2] = 1.0
    model = lm.LatentMDP(T, np.full((2, 3, 2), 0.5), initial=[0.5, 0.5, 0.0], horizon=8)
    usual = lm.simulate(model, lm.UniformPolicy(), 200, rng=0)
    odd = lm.simulate(model.replace(initial=2), lm.UniformPolicy(), 1, rng=0)
    logs = lm.Trajectories.concat([usual, odd]).without_contexts()
    folds = Episodes([unpaid(logs)]).folds(5, np.random.default_rng(0))
    (train,) = [train for train, _ in folds if (train.cell_counts() == 0.0).any()]
    moments, counts = PairMoments(train), train.cell_counts()
    totals = np.bincount(moments.row, counts)
    np.testing.assert_allclose(np.bincount(moments.row, moments.root**2), totals > 0.0)
    found = context_points(train, moments.factor(1), np.random.default_rng(0))
    assert np.isfinite(found.points).all()
    chosen = lm.initialize(None, logs, n_contexts="auto", rng=0)
    assert chosen.model.n_contexts == 2


def test_one_mdp_leaves_only_noise() -> None:
    """The largest eigenvalue of a 42-dimensional noise matrix exceeds 1.5 edges with p < 1e-6."""
    model = lm.make("separated", contexts=2, states=7, actions=1, horizon=20, delta=0.5, rng=0)
    values, edge = spectrum(PairMoments(episodes_of(model.context(0), 4000)))
    assert values[0] < 1.5 * edge


def test_the_factor_spans_the_differences_of_the_contexts() -> None:
    model = lm.make("separated", contexts=3, states=6, actions=2, horizon=30, delta=0.4, rng=1)
    episodes = episodes_of(model, 5000)
    moments = PairMoments(episodes)
    values, edge = spectrum(moments)
    assert values[1] > 1.5 * edge > values[2] > 0.0
    F = moments.factor(2)
    pooled = moments.root**2
    truth = np.moveaxis(model.transitions, 0, -1).reshape(-1, 3)[episodes.cells]
    scale = np.sqrt(episodes.cell_counts())[:, None]
    differences = (truth / pooled[:, None] - 1.0) * scale
    basis, _ = np.linalg.qr(F * scale)
    captured = np.sum((basis.T @ differences) ** 2) / np.sum(differences**2)
    assert captured > 0.9


def test_points_of_the_contexts() -> None:
    """Contexts built from the points are close to the true ones, without any EM on the data."""
    model = lm.make("separated", contexts=3, states=6, actions=2, horizon=60, delta=0.4, rng=1)
    episodes = episodes_of(model, 3000)
    moments = PairMoments(episodes)
    F = moments.factor(2)
    found = context_points(episodes, F, np.random.default_rng(0))
    assert (np.diff(found.log_likelihood) <= 0.0).all()
    tilted = moments.root[:, None] ** 2 * moments.factors(F, found.points[0])
    T = np.zeros((model.n_states * model.n_actions * model.n_states, 3))
    T[episodes.cells] = tilted
    T = np.moveaxis(T.reshape(model.n_states, model.n_actions, model.n_states, 3), -1, 0)
    estimate = model.replace(transitions=T / T.sum(axis=-1, keepdims=True))
    pooled = model.replace(transitions=np.repeat(model.mixture().transitions, 3, axis=0))
    assert lm.model_error(model, estimate) < 0.5 * lm.model_error(model, pooled)
    np.testing.assert_allclose(found.weights[0].sum(), 1.0)


def test_a_row_without_a_visit_in_the_training_episodes_counts_as_nothing() -> None:
    """Moments and factors stay finite where the training episodes never see a state."""
    usual = [[0, 1, 0, 1, 0]] * 12
    logs = lm.Trajectories.from_lists(
        [*usual, [0, 1, 2, 2, 2]], [[0, 1, 0, 1]] * 13, [[0, 1, 0, 1]] * 13
    )
    episodes = Episodes([logs])
    for train, _ in episodes.folds(13, np.random.default_rng(0)):
        moments = PairMoments(train)
        unseen = np.bincount(moments.row, train.cell_counts())[moments.row] == 0.0
        assert unseen.any() == (train.cell_counts() == 0.0).any()
        assert (whitened(moments)[unseen] == 0.0).all()
        assert np.isfinite(moments.factor(1)).all()
