"""Published methods find well separated contexts, and EM improves on them."""

import numpy as np
import pytest

import latentmdp as lm
from latentmdp.errors import TrajectoryError
from latentmdp.estimation import SubspaceClustering, TrajectoryKMeans
from latentmdp.estimation.clustering import profiles

pytestmark = pytest.mark.filterwarnings("ignore::latentmdp.fit.FitWarning")


@pytest.fixture(scope="module")
def logs() -> lm.Trajectories:
    model = lm.make("separated", contexts=3, states=5, actions=2, horizon=60, delta=0.8, rng=4)
    return lm.simulate(model, lm.UniformPolicy(), 500, rng=0)


@pytest.mark.parametrize("peer", [SubspaceClustering, TrajectoryKMeans])
def test_separated_contexts_are_found(peer: type, logs: lm.Trajectories) -> None:
    method = peer(3, em=lm.EM(3, pseudo_counts=1.0))
    before = lm.clustering_accuracy(logs.contexts, method.cluster(logs, rng=0))
    fit = method.fit(logs.without_contexts(), rng=0)
    assert before > 0.9
    assert lm.clustering_accuracy(logs.contexts, fit.labels) > 0.98
    assert fit.converged


def test_profiles_count_transitions_by_half(logs: lm.Trajectories) -> None:
    some = logs[:5]
    seen = profiles(some)
    states, actions, _ = some.as_arrays()
    for half, steps in zip(seen.halves, (slice(0, 30), slice(30, 60))):
        for n in range(5):
            s, a, next_state = states[n, :-1][steps], actions[n][steps], states[n, 1:][steps]
            expected = np.unique(np.stack([s, a, next_state]), axis=1, return_counts=True)[1]
            np.testing.assert_array_equal(np.sort(half[[n]].data), np.sort(expected))


def test_only_some_of_many_trajectories_are_clustered(
    monkeypatch: pytest.MonkeyPatch, logs: lm.Trajectories
) -> None:
    monkeypatch.setattr(SubspaceClustering, "most", 200)
    method = SubspaceClustering(3, em=lm.EM(3, pseudo_counts=1.0))
    assert np.count_nonzero(method.cluster(logs, rng=0) >= 0) == 200
    assert lm.clustering_accuracy(logs.contexts, method.fit(logs, rng=0).labels) > 0.98


def test_episodes_without_common_rows_are_refused(logs: lm.Trajectories) -> None:
    states, actions, rewards = logs.as_arrays()
    short = lm.Trajectories.from_arrays(states[:4, :2], actions[:4, :1], rewards[:4, :1])
    with pytest.raises(TrajectoryError, match="too short for subspace clustering"):
        SubspaceClustering(2).cluster(short)
