"""Logs with a history: the state joined with what came before it, in memory and on disk."""

import numpy as np
import pytest

import latentmdp as lm


def logs_of(seed=0, episodes=40):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 6, episodes)
    states = [rng.integers(0, 3, n + 1).tolist() for n in lengths]
    actions = [rng.integers(0, 2, n).tolist() for n in lengths]
    rewards = [rng.integers(0, 2, n).tolist() for n in lengths]
    names = {"state_names": ["poor", "fair", "good"], "action_names": ["drug", "rest"]}
    return lm.Trajectories.from_lists(states, actions, rewards, reward_values=[0.0, 1.0], **names)


def by_hand(episode, t, actions, states, logs):
    parts = [
        logs.state_names[episode.states[t - k]] if t >= k else None for k in range(1, states + 1)
    ]
    parts += [
        logs.action_names[episode.actions[t - k]] if t >= k else None for k in range(1, actions + 1)
    ]
    if all(part is None for part in parts):
        return f"{logs.state_names[episode.states[t]]}, at first"
    return (
        f"{logs.state_names[episode.states[t]]}, after {', '.join(p or 'nothing' for p in parts)}"
    )


@pytest.mark.parametrize(("actions", "states"), [(1, 0), (0, 1), (2, 0), (1, 2)])
def test_every_state_is_called_by_what_came_before(actions, states) -> None:
    logs = logs_of()
    joined = logs.with_history(actions=actions, states=states)
    for before, after in zip(logs, joined, strict=True):
        assert after.actions.tolist() == before.actions.tolist()
        assert after.rewards.tolist() == before.rewards.tolist()
        expected = [by_hand(before, t, actions, states, logs) for t in range(len(before.states))]
        assert [joined.state_names[s] for s in after.states] == expected
    assert set(joined.states.tolist()) == set(range(joined.n_states)), "only what occurs"
    assert joined.returns().tolist() == logs.returns().tolist()


def test_missing_states_stay_missing() -> None:
    logs = lm.Trajectories.from_lists([[0, 1, -1], [1, 0]], [[0, 1], [1]], [[0, 0], [1]])
    joined = logs.with_history()
    assert joined.last_states.tolist()[0] == -1
    assert joined.state_names == (
        "state 0, at first",
        "state 0, after action 1",
        "state 1, at first",
        "state 1, after action 0",
    )


def test_logs_on_disk_are_the_same(tmp_path) -> None:
    logs = logs_of(episodes=60)
    lm.save(logs[:30], tmp_path / "a.parquet")
    lm.save(logs[30:], tmp_path / "b.parquet")
    files = lm.open_logs(str(tmp_path / "*.parquet")).with_history(actions=1, states=1)
    joined = logs.with_history(actions=1, states=1)
    assert files.state_names == joined.state_names
    assert files.n_states == joined.n_states
    assert files.read().states.tolist() == joined.states.tolist()
    assert files.endings().shortest.tolist() == joined.endings().shortest.tolist()
    with pytest.raises(ValueError, match="already"):
        files.with_history()


def test_what_cannot_be_joined_is_refused() -> None:
    with pytest.raises(ValueError, match="both are 0"):
        logs_of().with_history(actions=0)
    with pytest.raises(ValueError, match="actions"):
        logs_of().with_history(actions=-1)
    with pytest.raises(ValueError, match="too many"):
        logs_of().with_history(actions=60)
