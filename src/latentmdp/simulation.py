"""Episodes of a policy in a world: compiled rollouts of a model, step by step in any other.

Chance is counter-based (`latentmdp._kernels.philox`): what happens in episode i depends on the
seed and on i alone. So a batch is bit-identical for any number of threads, and equal to the
concatenation of shards cut with `first_episode`. A stochastic policy draws from the same counters,
compiled or not.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from latentmdp._util import arrays
from latentmdp._util.arrays import Floats, Indices, Integers
from latentmdp._util.memory import require_memory
from latentmdp._util.random import RNGLike, philox_key
from latentmdp._util.storage import require_writable
from latentmdp.engines.base import Engine, as_engine
from latentmdp.engines.cuda.device import even_width, gpu, on_gpu, widened
from latentmdp.engines.threads import blocks, run_blocks
from latentmdp.errors import DeviceError
from latentmdp.logs import BATCH_STEPS, Episode, Trajectories, write_shard, written
from latentmdp.model import LatentMDP, require_model
from latentmdp.outcomes import Outcomes
from latentmdp.policies import HistoryPolicy, Policy, PolicyGraph, Sized, interpreter
from latentmdp.worlds import ModelWorld, Space, Transition, World, play_episode

if TYPE_CHECKING:
    from latentmdp._kernels.rollout import Acting, Earning
    from latentmdp.engines.cuda.kernels_episodes import Noted, RolloutKind

__all__ = ["PolicyAgent", "gathered", "play", "returns_in", "simulate"]

_BLOCK_STEPS = 1 << 16
"""Steps that one thread plays at a time: enough to outweigh the cost of handing them out."""
_GPU_PIECE = 1 << 21
"""Episodes that a GPU plays at a time, one a thread: many times what it runs at once."""
_OUTCOME = ("starts", "next_state", "reward")


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
    threads
        Threads to use; None takes all cores. The result does not depend on it.
    horizon
        Cut episodes off after so many steps. By default they last the model's horizon; where it
        has none, the first T steps with discount^T below 1e-4.
    device
        "cpu", or "cuda" for a GPU, which plays any `Policy` but policy graphs. The result does not
        depend on it.
    out
        A new or empty folder: episodes are written there as Parquet files of about two million
        steps each, and memory does not grow with their number.
    engine
        Where to play instead of in `threads`; the result does not depend on it.

    Returns
    -------
    Trajectories, or LogFiles where they are written to `out`
        With the true contexts.
    """
    require_model(model)
    episodes = arrays.positive_integer("episodes", episodes)
    if first_episode < 0:
        raise ValueError(f"first_episode must not be negative, got {first_episode}")
    if horizon is not None:
        horizon = arrays.positive_integer("horizon", horizon)
        if model.horizon is not None and horizon > model.horizon:
            raise ValueError(f"horizon is {horizon}, but the model ends after {model.horizon}")
    key, world = philox_key(rng), ModelWorld(model)
    if out is None and engine is None:
        return play(
            world,
            policy,
            episodes,
            key,
            first_episode,
            horizon=horizon,
            threads=threads,
            device=device,
        )
    space = world.space if horizon is None else replace(world.space, horizon=horizon)
    each = max(1, BATCH_STEPS // space.longest_episode)
    parts = [(first_episode + a, b - a) for a, b in blocks(episodes, each)]
    common = (model, policy, key, horizon, device)
    work = as_engine(engine, threads)
    if out is None:
        return Trajectories.concat(work.map(_played_part, parts, *common))
    folder = _empty_folder(out)
    named = [(*part, os.path.join(folder, f"part-{k:06d}.parquet")) for k, part in enumerate(parts)]
    return written(work.map(_written_part, named, *common))


def _played_part(
    part: tuple[int, int],
    model: LatentMDP,
    policy: Policy | HistoryPolicy,
    key: int,
    horizon: int | None,
    device: str,
) -> Trajectories:
    """Some episodes, in one thread."""
    first, number = part
    world = ModelWorld(model)
    return play(world, policy, number, key, first, horizon=horizon, threads=1, device=device)


def _written_part(part: tuple[int, int, str], *common: Any) -> Any:
    """Some episodes, written to a file."""
    *episodes, path = part
    return write_shard(_played_part((episodes[0], episodes[1]), *common), path)


def _empty_folder(out: str | os.PathLike[str]) -> str:
    folder = os.path.abspath(out)
    os.makedirs(folder, exist_ok=True)
    if any(name.endswith(".parquet") for name in os.listdir(folder)):
        raise FileExistsError(
            f"{folder} holds .parquet files already: give a new or empty folder as out"
        )
    require_writable(os.path.join(folder, "part-000000.parquet"))
    return folder


def play(
    world: World,
    policy: Policy | HistoryPolicy,
    episodes: int,
    key: int,
    first_episode: int = 0,
    *,
    horizon: int | None = None,
    threads: int | None = None,
    device: str = "cpu",
) -> Trajectories:
    """Episodes first_episode, first_episode + 1, ... of a world under one policy.

    Parameters
    ----------
    key
        What happens in an episode depends on the key, its number and the policy alone.
    horizon
        Stop episodes after so many steps; by default the world's horizon, see
        `Space.longest_episode`.

    Returns
    -------
    Trajectories
        With the true contexts where the world reveals all of them.
    """
    space = world.space if horizon is None else replace(world.space, horizon=horizon)
    on_device = on_gpu(device)
    if on_device:
        _require_compiled(world, policy)
    if isinstance(world, ModelWorld) and isinstance(policy, Policy):
        return _rolled_out(world, policy, space, episodes, key, first_episode, threads, on_device)
    agent = PolicyAgent(policy, space, key)
    H = space.longest_episode
    played = [play_episode(world, agent, key, first_episode + i, H) for i in range(episodes)]
    return gathered(played, world.space)


def gathered(played: Sequence[Episode], space: Space) -> Trajectories:
    """Episodes as logs, with their contexts if all are known."""
    contexts = [episode.context for episode in played if episode.context is not None]
    return Trajectories.from_lists(
        [episode.states.tolist() for episode in played],
        [episode.actions.tolist() for episode in played],
        [episode.rewards.tolist() for episode in played],
        contexts if len(contexts) == len(played) else None,
        n_states=space.n_states,
        n_actions=space.n_actions,
        reward_values=space.reward_array,
    )


def returns_in(
    model: LatentMDP,
    policy: Policy | HistoryPolicy,
    contexts: Indices,
    key: int,
    *,
    horizon: int | None = None,
    threads: int | None = None,
    device: str = "cpu",
    first_episode: int = 0,
) -> Floats:
    """The return of one episode in each of the given contexts, hidden rewards counted, (N,).

    Episode i has number first_episode + i, as in `simulate`. Nothing else of them is kept.
    """
    world = ModelWorld(model)
    space = world.space if horizon is None else replace(world.space, horizon=horizon)
    on_device = on_gpu(device)
    if on_device:
        _require_compiled(world, policy)
    if not isinstance(policy, Policy):
        return _stepped_returns(world, policy, space, contexts, key, first_episode)
    earning = _earning(model)
    if on_device:
        return Rollouts(world, policy, space, key).returns(contexts, earning, first_episode)
    returns, nothing = np.empty(contexts.size), np.empty((0, 0), np.int32)

    def note(start: int, stop: int) -> tuple[Any, ...]:
        part = slice(start, stop)
        lengths = np.empty(stop - start, np.int64)
        return contexts[part].copy(), lengths, nothing, nothing, nothing, earning, returns[part]

    _run_episodes(world, policy, space, contexts.size, key, first_episode, True, note, threads)
    return returns


def _stepped_returns(
    world: ModelWorld,
    policy: HistoryPolicy,
    space: Space,
    contexts: Indices,
    key: int,
    first_episode: int,
) -> Floats:
    """`returns_in` for a callable, step by step."""
    model, agent, returns = world.model, PolicyAgent(policy, space, key), np.zeros(contexts.size)
    for i, m in enumerate(contexts.tolist()):
        world.given_context = m
        number = first_episode + i
        states, actions, rewards, _ = play_episode(world, agent, key, number, space.longest_episode)
        earned = model.reward_values[rewards]
        if model.bonus is not None:
            earned = earned + model.bonus[m, states[:-1], actions]
        returns[i] = earned @ model.discount ** np.arange(actions.size)
    return returns if model.initial_bonus is None else returns + model.initial_bonus[contexts]


def _rolled_out(
    world: ModelWorld,
    policy: Policy,
    space: Space,
    episodes: int,
    key: int,
    first_episode: int,
    threads: int | None,
    on_device: bool,
) -> Trajectories:
    H = space.longest_episode
    ragged = bool(world.space.terminal.any())
    require_memory(
        12.0 * episodes * H if not ragged else 0.0, f"{episodes:,} episodes of {H} steps"
    )
    lengths, contexts = np.empty(episodes, np.int64), np.empty(episodes, np.int32)
    earning = _earning(world.model)
    widths = (H + 1, H, H)
    whole = [np.empty((0 if ragged else episodes, width), np.int32) for width in widths]

    def note(start: int, stop: int) -> tuple[Any, ...]:
        part = slice(start, stop)
        logs = [array[part] for array in whole]
        if ragged:
            logs = [np.empty((stop - start, width), np.int32) for width in widths]
        return contexts[part], lengths[part], *logs, earning, np.empty(0)

    def keep(lengths: Integers, *logs: Indices) -> list[Indices]:
        """The steps that were taken: all, unless episodes may end early."""
        last = (lengths + 1, lengths, lengths)
        return [log[np.arange(log.shape[1]) < end[:, None]] for log, end in zip(logs, last)]

    if on_device:
        rollouts = Rollouts(world, policy, space, key)
        played = rollouts.logs(episodes, first_episode, note, threads)
    else:
        where = (episodes, key, first_episode)
        played = _run_episodes(world, policy, space, *where, False, note, threads)
    if ragged:
        kept = [keep(*noted[1:5]) for noted in played]
        states, actions, rewards = (np.concatenate(part) for part in zip(*kept))
    else:
        states, actions, rewards = (array.ravel() for array in whole)
    return Trajectories._trusted(
        world.space.n_states,
        world.space.n_actions,
        states=states,
        actions=actions,
        rewards=rewards,
        offsets=np.concatenate([[0], np.cumsum(lengths)]),
        contexts=contexts,
        reward_values=world.space.reward_array,
    )


def _run_episodes(
    world: ModelWorld,
    policy: Policy,
    space: Space,
    episodes: int,
    key: int,
    first_episode: int,
    given_contexts: bool,
    note: Callable[[int, int], tuple[Any, ...]],
    threads: int | None,
) -> list[Any]:
    """Play episodes in blocks; `note(start, stop)` gives the arrays that a block fills."""
    from latentmdp._kernels.rollout import rollout

    H = space.longest_episode
    acting, likelihood, places = _acting_in(policy, world, space)

    def work(start: int, stop: int) -> tuple[Any, ...]:
        noted = note(start, stop)
        where = (np.uint64(key), first_episode + start, H, given_contexts)
        rollout(world.chances, acting, likelihood, places, *where, *noted)
        return noted

    return run_blocks(work, blocks(episodes, max(1, _BLOCK_STEPS // H)), threads)


class Rollouts:
    """Episodes of a policy in a model on a GPU: the tables lie there, and pieces are played."""

    def __init__(self, world: ModelWorld, policy: Policy, space: Space, key: int) -> None:
        self._gpu, self._key, self._horizon = gpu(), np.uint64(key), space.longest_episode
        acting, likelihood, _ = _acting_in(policy, world, space)
        self._sizes = world.chances.sizes
        self._kind = _kind(acting, likelihood, world)
        self._nothing = self._gpu.put(_earning(world.model))
        self._tables = self._gpu.put((world.chances, _widened_acting(acting, likelihood)))

    def _play(self, first: int, noted: Noted, earning: Earning, given: bool, stores: bool) -> None:
        """Start the kernel for a piece; `noted` and `earning` lie on the GPU."""
        from latentmdp.engines.cuda.kernels_episodes import rollout_kernel

        kernel = rollout_kernel(self._kind._replace(given=given, stores=stores, earns=not stores))
        where = (self._key, first, self._horizon)
        count = noted.contexts.shape[0]
        self._gpu.launch(kernel, count, *self._tables, earning, *where, noted)

    def room(self, count: int) -> Noted:
        """Room on the GPU for the logs of so many episodes, in the narrowest integers."""
        from latentmdp.engines.cuda.kernels_episodes import Noted

        S, A, Z = self._sizes
        rows = (self._horizon + 1, self._horizon, self._horizon)
        logs = [self._gpu.empty((n, count), _integers(most)) for n, most in zip(rows, (S, A, Z))]
        contexts, lengths = (self._gpu.empty(count, np.int32) for _ in range(2))
        return Noted(contexts, lengths, logs[0], logs[1], logs[2], self._gpu.empty(1, np.float64))

    def start(self, first: int, noted: Noted) -> None:
        """Start to play an episode for every entry of `noted.contexts`, from number `first` on."""
        self._play(first, noted, self._nothing, False, True)

    def logs(
        self,
        episodes: int,
        first_episode: int,
        note: Callable[[int, int], tuple[Any, ...]],
        threads: int | None,
    ) -> list[Any]:
        """Play episodes in pieces; `note(start, stop)` gives the arrays that a piece fills."""
        bytes_each = sum(_integers(n).itemsize for n in self._sizes) * (self._horizon + 1) + 16.0
        pieces = self._gpu.pieces(episodes, bytes_each, _GPU_PIECE)
        noted, played = None, []
        for start, stop in pieces:
            if noted is None or noted.contexts.shape[0] != stop - start:
                noted = self.room(stop - start)
            self.start(first_episode + start, noted)
            kept = note(start, stop)
            kept[0][:], kept[1][:] = self._gpu.fetch(noted.contexts), self._gpu.fetch(noted.lengths)
            for log, target in zip(noted[2:5], kept[2:5]):
                _transpose(self._gpu.fetch(log), target, threads)
            played.append(kept)
        return played

    def returns(self, contexts: Indices, earning: Earning, first_episode: int) -> Floats:
        """The return of an episode in each of the given contexts."""
        from latentmdp.engines.cuda.kernels_episodes import Noted

        returns, earning = np.empty(contexts.size), self._gpu.put(earning)
        blank = self._gpu.empty((1, 1), np.int32)
        for start, stop in self._gpu.pieces(contexts.size, 16.0, _GPU_PIECE):
            lengths = self._gpu.empty(stop - start, np.int32)
            given = self._gpu.put(contexts[start:stop].astype(np.int32))
            earned = self._gpu.empty(stop - start, np.float64)
            noted = Noted(given, lengths, blank, blank, blank, earned)
            self._play(first_episode + start, noted, earning, True, False)
            returns[start:stop] = self._gpu.fetch(noted.returns)
        return returns


def _kind(acting: Acting, likelihood: Floats, world: ModelWorld) -> RolloutKind:
    from latentmdp._kernels.rollout import NOT_LISTED
    from latentmdp.engines.cuda.kernels_episodes import RolloutKind

    return RolloutKind(
        width=even_width(acting.filter.prior.size),
        stochastic=acting.stochastic,
        filters=acting.filters,
        layered=acting.n_layers > 1,
        partial=bool((likelihood[:, 0] == NOT_LISTED).any()),
        n_vectors=_equal_steps(acting.offsets),
        n_outcomes=_equal_steps(world.chances.starts),
        ragged=bool(world.space.terminal.any()),
        given=False,
        stores=True,
        earns=False,
    )


def _equal_steps(starts: Integers) -> int:
    """How long every row is that `starts` cuts out; 0 where lengths differ."""
    lengths = np.diff(starts)
    return int(lengths[0]) if (lengths == lengths[0]).all() else 0


def _widened_acting(acting: Acting, likelihood: Floats) -> Acting:
    """A policy with an even number of contexts, its likelihoods by the world's outcomes."""
    width, blank = even_width(acting.filter.prior.size), np.zeros(1, np.int32)
    own = acting.filter._replace(
        starts=np.zeros(1, np.int64),
        next_state=blank,
        reward=blank,
        likelihood=widened(likelihood, width),
        prior=widened(acting.filter.prior, width),
        initial=widened(acting.filter.initial, width),
    )
    vectors = widened(acting.vectors, width) if acting.filters else np.zeros((1, width))
    return acting._replace(vectors=vectors, filter=own)


def _earning(model: LatentMDP) -> Earning:
    """What an episode of a model earns, as kernels read it."""
    from latentmdp._kernels.rollout import Earning

    M, S, A, _ = model.dimensions
    first = np.zeros(M) if model.initial_bonus is None else model.initial_bonus
    bonus = np.zeros((1, 1)) if model.bonus is None else model.bonus.reshape(M, S * A)
    tables = [arrays.read_only(array) for array in (model.reward_values, first, bonus)]
    return Earning(model.discount, tables[0], tables[1], model.bonus is not None, tables[2])


def _transpose(log: NDArray[Any], target: Indices, threads: int | None) -> None:
    """target[i, t] = log[t, i], in blocks that stay in a core's cache."""
    from latentmdp._kernels.episodes import transpose

    def work(start: int, stop: int) -> None:
        transpose(log, start, stop, target)

    run_blocks(work, blocks(len(target), 1 << 12), threads)


def _integers(most: int) -> np.dtype[Any]:
    """The narrowest integers that count up to `most`."""
    return np.dtype(np.min_scalar_type(-most))


def _require_compiled(world: World, policy: object) -> None:
    """Raise `DeviceError` unless a GPU can play the policy in the world."""
    if not isinstance(world, ModelWorld) or not isinstance(policy, Policy):
        raise DeviceError(
            f'device="cuda" plays a Policy in a model, not a {type(policy).__name__} in a '
            f"{type(world).__name__}: other worlds and functions of the history run with "
            'device="cpu"'
        )
    if isinstance(policy, PolicyGraph):
        raise DeviceError(
            f'device="cuda" does not follow a {type(policy).__name__} yet: policy graphs and their '
            'mixtures run with device="cpu"'
        )


def _acting_in(policy: Policy, world: ModelWorld, space: Space) -> tuple[Acting, Floats, Integers]:
    """The policy as arrays, and the likelihoods and places of `_aligned`."""
    sized = world.model if space is world.space else space  # a model has names for messages
    acting = policy.acting(sized)
    return acting, *_aligned(acting, world)


def _aligned(acting: Acting, world: ModelWorld) -> tuple[Floats, Integers]:
    """Likelihoods (n, M) of a policy's filter for the outcomes of a world, and their places in it.

    The likelihoods are the filter's own where both have the same outcomes, and copied otherwise.
    Places are needed by a policy graph only; -1 stands for an outcome that the filter lacks.
    """
    from latentmdp._kernels.rollout import align_likelihoods

    own = acting.filter
    if not acting.filters:
        return own.likelihood, np.zeros(1, np.int64)
    table = world.model.outcomes
    listed = Outcomes(own.starts, own.next_state, own.reward, own.likelihood)
    same = (np.array_equal(getattr(table, name), getattr(listed, name)) for name in _OUTCOME)
    if all(same):
        return own.likelihood, np.arange(table.size if acting.follows else 1)
    S, _, Z = own.sizes
    places = listed.find(table.keys(S, Z), S, Z)
    return arrays.read_only(align_likelihoods(own.likelihood, places)), places


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
        return self._interpreter.draw(t, self._state, self._memory, self._uniform(t))

    def observe(self, action: int, transition: Transition) -> None:
        """See what followed."""
        n, z = transition.next_state, transition.reward
        self._memory = self._interpreter.observe(self._memory, self._state, action, n, z)
        self._state = n

    def belief(self) -> Floats:
        """The belief of the policy's filter, (M,)."""
        from latentmdp._kernels.belief import AWAKE

        belief: Floats = self._memory.belief[AWAKE].copy()
        return belief

    def _uniform(self, t: int) -> float:
        from latentmdp._kernels.philox import uniform_pair

        return float(uniform_pair(self._key, np.uint64(0), self._episode, np.uint64(t + 1))[0])
