"""Labels of different states: planted permutations are found again, contradictions are told."""

import numpy as np
import pytest

from latentmdp.errors import RecoveryError
from latentmdp.spectral.recovery import (
    count_links,
    link_by_tree,
    overall_agreement,
    require_consistent,
    synchronise,
)


def planted(rng, states=6, contexts=4, episodes=3_000, noise=0.0):
    """Links of episodes with two states each, whose labels are wrong with probability `noise`."""
    truth = np.array([rng.permutation(contexts) for _ in range(states)])
    label_of = np.argsort(truth, axis=1)
    ends = np.array([rng.choice(states, 2, replace=False) for _ in range(episodes)])
    context = rng.integers(contexts, size=(episodes, 1))
    shown = np.where(
        rng.random(ends.shape) < noise, rng.integers(contexts, size=ends.shape), context
    )
    labels = label_of[ends, shown]
    numbers = np.repeat(np.arange(episodes), 2)
    return truth, count_links(numbers, ends.ravel(), labels.ravel(), states, contexts)


def relabelled(found, truth):
    """Whether both agree up to one renaming of the contexts."""
    rename = np.empty(truth.shape[1], dtype=int)
    rename[found[0]] = truth[0]
    return bool((rename[found] == truth).all())


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_planted_contexts_are_found(seed, noise):
    truth, links = planted(np.random.default_rng(seed), noise=noise)
    present = np.ones(6, dtype=bool)
    for contexts in (link_by_tree(links, present), synchronise(links, present)):
        assert relabelled(contexts, truth)
        require_consistent(links, contexts, present)


@pytest.mark.parametrize("seed", range(5))
def test_synchronisation_stands_more_noise_than_a_tree(seed):
    """With 70% of the labels random, all links together still tell the contexts."""
    truth, links = planted(np.random.default_rng(seed), episodes=6_000, noise=0.7)
    assert relabelled(synchronise(links, np.ones(6, dtype=bool)), truth)


def test_pure_noise_is_inconsistent():
    _, links = planted(np.random.default_rng(0), noise=1.0)
    present = np.ones(6, dtype=bool)
    contexts = synchronise(links, present)
    assert overall_agreement(links, contexts, present) < 0.5
    with pytest.raises(RecoveryError, match=r"linking failed: .* inconsistent") as caught:
        require_consistent(links, contexts, present)
    assert caught.value.step == "linking"


def test_a_state_without_links_is_named():
    _, links = planted(np.random.default_rng(0))
    links[4] = 0.0
    links[:, :, 4] = 0.0
    with pytest.raises(RecoveryError, match="labels of state 4"):
        link_by_tree(links, np.ones(6, dtype=bool))


def test_a_label_without_links_is_named():
    _, links = planted(np.random.default_rng(0))
    links[2, 1] = 0.0
    links[:, :, 2, 1] = 0.0
    present = np.ones(6, dtype=bool)
    with pytest.raises(RecoveryError, match="label 1 at state 2 passes to another"):
        require_consistent(links, link_by_tree(links, present), present)
