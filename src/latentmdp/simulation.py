"""Episodes of a policy in a world: compiled rollouts of a model, step by step in any other.

Chance is counter-based (`latentmdp._kernels.philox`): what happens in episode i depends on the
seed and on i alone. So a batch is bit-identical for any number of threads, and equal to the
concatenation of shards cut with `first_episode`. A stochastic policy draws from the same counters,
compiled or not.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from latentmdp import _kernels
from latentmdp._util import arrays
from latentmdp._util.arrays import Floats, Indices, Integers
from latentmdp._util.memory import require_memory
from latentmdp._util.random import RNGLike, philox_key
from latentmdp._util.storage import atomic_write, require_writable
from latentmdp.engines import Engine, Threads, as_engine, blocks
from latentmdp.logs import BATCH_STEPS, Episode, Trajectories
from latentmdp.model import LatentMDP, require_model
from latentmdp.outcomes import ContextVectors, Outcomes
from latentmdp.policies import HistoryPolicy, Policy, Sized, interpreter
from latentmdp.worlds import (
    ModelWorld,
    PaidEpisode,
    Space,
    Transition,
    VectorWorld,
    World,
    play_episode,
    play_side_by_side,
)

__all__ = ["PolicyAgent", "block_sums", "gathered", "play", "simulate"]

_BLOCK_STEPS = 1 << 16
"""Steps that one thread plays at a time: enough to outweigh the cost of handing them out."""


def simulate(
    model: LatentMDP,
    policy: Policy | HistoryPolicy,
    episodes: int,
    rng: RNGLike = None,
    first_episode: int = 0,
    threads: int | None = None,
    *,
    horizon: int | None = None,
    device: str = "cpu",
    out: str | os.PathLike[str] | None = None,
    engine: Engine | None = None,
) -> Any:
    """Play `episodes` episodes of the model's horizon, or until they reach a terminal state.

    Parameters
    ----------
    policy
        A `Policy`, or any callable that maps a `History` to an action or to a probability for
        each action (a slow path).
    rng
        A seed stands for one fixed infinite sequence of episodes.
    first_episode
        Where in that sequence to begin.
    horizon
        Cut episodes off after so many steps. By default they last the model's horizon; where it
        has none, the first T steps with discount^T below 1e-4, or 10,000 without a discount.
    out
        A new or empty folder: episodes are written there as Parquet files of about two million
        steps each, and memory does not grow with their number.
    engine
        Where to play: threads of this process by default, see `latentmdp.engines`. A GPU plays any
        `Policy` but policy graphs. The result does not depend on it.
    threads, device
        `threads=n` is short for `engine=engines.Threads(n)`, `device="cuda"` for `engines.Cuda()`.

    Returns
    -------
    Trajectories, or LogFiles where they are written to `out`
        With the true contexts.
    """
    require_model(model)
    episodes = arrays.positive_integer("episodes", episodes)
    if first_episode < 0:
        raise ValueError(f"first_episode must not be negative, got {first_episode}")
    engine = as_engine(engine, threads, device)
    key, world = philox_key(rng), ModelWorld(model)
    space = world.space.cut(horizon)
    if out is None and isinstance(engine, Threads):
        return play(world, policy, episodes, key, first_episode, horizon=horizon, engine=engine)
    each = max(1, BATCH_STEPS // space.longest_episode)
    parts = [(first_episode + a, b - a) for a, b in blocks(episodes, each)]
    common = (model, policy, key, horizon, engine.within)
    if out is None:
        return Trajectories.concat(engine.map(_played_part, parts, *common))
    from latentmdp.logs import INCOMPLETE, written

    acts = getattr(policy, "fingerprint", lambda: getattr(policy, "__qualname__", repr(policy)))()
    numbers = [str(key), first_episode, episodes, space.longest_episode]
    folder = _claimed_folder(out, {"simulate": [model.fingerprint(), acts, *numbers]})
    named = [(*part, os.path.join(folder, f"part-{k:06d}.parquet")) for k, part in enumerate(parts)]
    logs = written(engine.map(_written_part, named, *common))
    os.remove(os.path.join(folder, INCOMPLETE))
    return logs


def _played_part(
    part: tuple[int, int],
    model: LatentMDP,
    policy: Policy | HistoryPolicy,
    key: int,
    horizon: int | None,
    engine: Threads,
) -> Trajectories:
    """Some episodes, as a piece of work."""
    first, number = part
    return play(ModelWorld(model), policy, number, key, first, horizon=horizon, engine=engine)


def _written_part(part: tuple[int, int, str], *common: Any) -> Any:
    """Some episodes, written to a file, unless a run that was ended has written it."""
    from latentmdp.logs import known_shard, write_shard

    *episodes, path = part
    if os.path.exists(path):
        return known_shard(path)
    return write_shard(_played_part((episodes[0], episodes[1]), *common), path)


def _claimed_folder(out: str | os.PathLike[str], content: dict[str, Any]) -> str:
    """A folder to write to: an empty one, or one in which the same was begun.

    Until all is written it has a file that says what is being written.
    """
    from latentmdp.logs import INCOMPLETE

    folder = os.path.abspath(out)
    os.makedirs(folder, exist_ok=True)
    claim = os.path.join(folder, INCOMPLETE)
    if os.path.exists(claim):
        with open(claim, encoding="utf-8") as stream:
            if stream.read() == json.dumps(content):
                return folder
        raise FileExistsError(f"{folder} holds other logs that are not complete: give another out")
    if any(name.endswith(".parquet") for name in os.listdir(folder)):
        raise FileExistsError(
            f"{folder} holds .parquet files already: give a new or empty folder as out"
        )
    require_writable(os.path.join(folder, "part-000000.parquet"))
    with atomic_write(claim) as target:
        target.write(json.dumps(content).encode())
    return folder


def play(
    world: World,
    policy: Policy | HistoryPolicy,
    episodes: int,
    key: int,
    first_episode: int = 0,
    *,
    horizon: int | None = None,
    engine: Threads | None = None,
) -> Trajectories:
    """Episodes first_episode, first_episode + 1, ... of a world under one policy.

    Parameters
    ----------
    key
        What happens in an episode depends on the key, its number and the policy alone.
    horizon
        Stop episodes after so many steps; by default the world's horizon, see
        `Space.longest_episode`.
    engine
        Where episodes of a model are played; by default in all cores. Those of other worlds, and
        of a function of the history, are played one after the other.

    Returns
    -------
    Trajectories
        With the true contexts where the world reveals all of them.
    """
    space = world.space.cut(horizon)
    engine = engine or Threads()
    if isinstance(world, ModelWorld) and isinstance(policy, Policy):
        return _rolled_out(world, policy, space, episodes, key, first_episode, engine)
    if isinstance(world, VectorWorld):
        agents = [PolicyAgent(policy, space, key) for _ in range(world.lanes)]
        last = first_episode + episodes
        batches = (
            play_side_by_side(world, agents[: last - k], key, k, space.longest_episode)
            for k in range(first_episode, last, world.lanes)
        )
        return gathered([episode for batch in batches for episode in batch], world.space)
    where = (world, PolicyAgent(policy, space, key), key, first_episode, space.longest_episode)
    (played,) = engine.run(_stepped_episodes, episodes, episodes, *where)
    return gathered(played, world.space)


def _stepped_episodes(
    start: int, stop: int, world: World, agent: PolicyAgent, key: int, first: int, horizon: int
) -> list[Episode]:
    """Episodes start..stop-1, step by step."""
    return [play_episode(world, agent, key, first + i, horizon) for i in range(start, stop)]


def gathered(played: Sequence[Episode], space: Space) -> Trajectories:
    """Episodes as logs, with their contexts if all are known, and amounts if they are measured."""
    paid = [np.zeros(0), *(one.amounts for one in played if isinstance(one, PaidEpisode))]
    contexts = [episode.context for episode in played if episode.context is not None]
    return Trajectories.from_lists(
        [episode.states.tolist() for episode in played],
        [episode.actions.tolist() for episode in played],
        [episode.rewards.tolist() for episode in played],
        contexts if len(contexts) == len(played) else None,
        n_states=space.n_states,
        n_actions=space.n_actions,
        reward_values=space.reward_array,
        reward_edges=space.reward_edges,
        amounts=np.concatenate(paid) if space.measured else None,
    )


def block_sums(
    model: LatentMDP, policy: Policy | HistoryPolicy, counts: Integers, key: int, engine: Engine
) -> tuple[Floats, Floats, Integers, Integers]:
    """Play counts[m] episodes in each context m, and add up their returns block by block.

    Hidden rewards count. Episodes are those of `simulate`, number 0 on, their contexts given: first
    all of context 0, then those of context 1, and so on. Nothing else of them is kept.
    """
    runs = _kernels.rollout.ContextRuns.of(counts)
    total, steps = int(runs.blocks[-1]), _kernels.rollout.SUMMED * Space.of(model).longest_episode
    if isinstance(engine, Threads):
        sums = _sums_of((0, total), model, policy, runs, key, engine)
    else:
        spans = blocks(total, max(1, BATCH_STEPS // steps))
        parts = engine.map(_sums_of, spans, model, policy, runs, key, engine.within)
        sums = np.concatenate(list(parts))
    return sums[:, 0], sums[:, 1], runs.spans(0, total)[2], runs.blocks


def _sums_of(
    span: tuple[int, int],
    model: LatentMDP,
    policy: Policy | HistoryPolicy,
    runs: _kernels.rollout.ContextRuns,
    key: int,
    engine: Threads,
) -> Floats:
    """The sums (n, 2) of some blocks, as a piece of work."""
    world, (begin, end) = ModelWorld(model), span
    space, sums = world.space, np.empty((end - begin, 2))
    own = runs._replace(blocks=runs.blocks - begin)  # blocks are counted from `begin` on
    if not isinstance(policy, Policy):
        agent = PolicyAgent(policy, space, key)
        engine.run(_stepped_sums, end - begin, end - begin, world, agent, key, own, sums)
        return sums
    playing = _playing(policy, world, space, key)
    size = max(1, _BLOCK_STEPS // (_kernels.rollout.SUMMED * space.longest_episode))
    engine.run(_kernels.rollout.sum_returns, end - begin, size, playing, _earning(model), own, sums)
    return sums


def _stepped_sums(
    start: int,
    stop: int,
    world: ModelWorld,
    agent: PolicyAgent,
    key: int,
    runs: _kernels.rollout.ContextRuns,
    sums: Floats,
) -> None:
    """`sum_returns` for a function of the history, step by step."""
    model, horizon = world.model, world.space.longest_episode
    contexts, first, sizes = runs.spans(start, stop)
    returns = np.empty(sizes.sum())
    for i, m in enumerate(np.repeat(contexts, sizes).tolist()):
        world.given_context = m
        played = play_episode(world, agent, key, int(first[0]) + i, horizon)
        states, actions, rewards, _ = played
        earned = model.reward_values[rewards]
        if model.bonus_vectors is not None:
            rows = states[:-1] * model.n_actions + actions
            earned = earned + model.bonus_vectors.of(rows)[:, m]
        returns[i] = earned @ model.discount ** np.arange(actions.size)
        returns[i] += 0.0 if model.initial_bonus is None else model.initial_bonus[m]
    sums[start:stop] = _kernels.rollout.sum_blocks(returns, sizes)


def _rolled_out(
    world: ModelWorld,
    policy: Policy,
    space: Space,
    episodes: int,
    key: int,
    first_episode: int,
    engine: Threads,
) -> Trajectories:
    H, ragged = space.longest_episode, bool(world.space.terminal.any())
    require_memory(
        12.0 * episodes * H if not ragged else 0.0, f"{episodes:,} episodes of {H} steps"
    )
    playing, earning = _playing(policy, world, space, key), _earning(world.model)
    lengths, contexts = np.empty(episodes, np.int64), np.full(episodes, -1, np.int32)
    size, parts = max(1, _BLOCK_STEPS // H), []
    # Where episodes may end early, few are played at a time: most of their rows may stay empty.
    for start, stop in blocks(episodes, max(1, BATCH_STEPS // H) if ragged else episodes):
        logs = [np.empty((stop - start, width), np.int32) for width in (H + 1, H, H)]
        playing = playing._replace(first_episode=first_episode + start)
        noted = (contexts[start:stop], lengths[start:stop], *logs, earning, np.empty(0))
        engine.run(_kernels.rollout.play_episodes, stop - start, size, playing, *noted)
        if ragged:
            last = lengths[start:stop, None]
            ends = (last + 1, last, last)
            logs = [log[np.arange(log.shape[1]) < end] for log, end in zip(logs, ends)]
        parts.append([log.ravel() for log in logs])
    columns = (part[0] if len(part) == 1 else np.concatenate(part) for part in zip(*parts))
    played: Any = dict(zip(("states", "actions", "rewards"), columns), contexts=contexts)
    played |= {"offsets": np.concatenate([[0], np.cumsum(lengths)])}
    own, paid = world.space, world.space.reward_array
    return Trajectories._trusted(own.n_states, own.n_actions, reward_values=paid, **played)


def _earning(model: LatentMDP) -> _kernels.rollout.Earning:
    """What an episode of a model earns, as kernels read it."""
    first = np.zeros(model.n_contexts) if model.initial_bonus is None else model.initial_bonus
    hidden = model.bonus_vectors or ContextVectors(np.zeros((1, 1)), np.zeros(1, np.int64))
    values, first, bonus, rows = map(
        arrays.read_only, (model.reward_values, first, np.ascontiguousarray(hidden[0]), hidden[1])
    )
    return _kernels.rollout.Earning(model.discount, values, first, model.has_bonus, bonus, rows)


def _playing(policy: Policy, world: ModelWorld, space: Space, key: int) -> _kernels.rollout.Playing:
    """The world and the policy as arrays, for episodes from number 0 on."""
    sized = world.model if space is world.space else space  # a model has names for messages
    acting = policy.acting(sized)
    tables = (world.chances, acting, *_aligned(acting, world))
    return _kernels.rollout.Playing(*tables, np.uint64(key), 0, space.longest_episode)


def _aligned(acting: _kernels.rollout.Acting, world: ModelWorld) -> tuple[Indices, Integers]:
    """Rows of the likelihoods of a policy's filter for a world's outcomes, and their places in it.

    Places are needed by a policy graph only; -1 stands for an outcome that the filter lacks.
    """
    own = acting.filter
    if not acting.filters:
        return own.pattern, np.zeros(1, np.int64)
    table = world.model.outcomes
    listed = Outcomes(own.starts, own.next_state, own.reward, own.likelihood, own.pattern)
    if table.lists_like(listed):
        return own.pattern, np.arange(table.size if acting.follows else 1)
    S, _, Z = own.sizes
    places = listed.find(table.keys(S, Z), S, Z)
    rows = np.where(places < 0, np.int32(-1), own.pattern[places])
    return arrays.read_only(rows), places


class PolicyAgent:
    """An agent that follows a policy, by the policy's own filter, one step at a time.

    Parameters
    ----------
    world
        A model or a space of the world's sizes.
    key
        Of the chance of a stochastic policy: that of `play`.
    """

    def __init__(self, policy: Policy | HistoryPolicy, world: Sized, key: int) -> None:
        self.policy, self.world = policy, world
        self._interpreter = interpreter(policy, world, key)
        self._key, self._episode = np.uint64(key), np.uint64(0)
        self._memory: Any = None

    def begin(self, episode: int, state: int) -> None:
        """See the first state."""
        self._episode, self._state = np.uint64(episode), state
        self._memory = self._interpreter.start(state, episode)

    def act(self, t: int) -> int:
        """The policy's action; a stochastic one draws it."""
        drawn = _kernels.philox.uniform_pair(
            self._key, np.uint64(0), self._episode, np.uint64(t + 1)
        )
        return self._interpreter.draw(t, self._state, self._memory, float(drawn[0]))

    def observe(self, action: int, transition: Transition) -> None:
        """See what followed."""
        n, z = transition.next_state, transition.reward
        self._memory = self._interpreter.observe(self._memory, self._state, action, n, z)
        self._state = n

    def belief(self) -> Floats:
        """The belief of the policy's filter, (M,)."""
        belief: Floats = self._memory.belief[_kernels.belief.AWAKE].copy()
        return belief
