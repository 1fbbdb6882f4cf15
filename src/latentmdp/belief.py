"""The context filter: what an agent believes about the hidden context [kwon2021, Sec. 2.1].

    b_1(m)     ∝ w_m nu_m(s_1)
    b_{t+1}(m) ∝ b_t(m) Q_m(s_{t+1}, r_t | s_t, a_t)

with Q_m = P_m, or the smoothed Q_m = alpha + (1 - alpha S Z) P_m of [kwon2021, Alg. 3], under which
no observation is impossible (S Z is the number of observations; 2 S in the paper). Smoothing
concerns transitions and rewards only; if it is positive and no context can start in s_1, the first
state is taken to carry no information.

The likelihoods are kept by the outcomes of the model's table, so the filter costs what the table
contains. An observation that the table does not list is impossible in every context; smoothed, it
has likelihood alpha in all of them and leaves the belief as it was. A reward or a last state that
is missing in logs is summed over, and a further segment of an individual goes on with its belief.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from latentmdp._util import arrays
from latentmdp._util.arrays import Floats
from latentmdp._util.storage import rows_on_disk
from latentmdp.engines.base import Engine, as_engine
from latentmdp.engines.cuda.device import even_width, gpu, on_gpu, widened
from latentmdp.engines.threads import blocks, run_blocks
from latentmdp.errors import DeviceError, ImpossibleObservationError
from latentmdp.logs import Batch, Logs, Trajectories, require_logs
from latentmdp.model import LatentMDP, require_model

if TYPE_CHECKING:
    from latentmdp._kernels.belief import Filter

__all__ = ["ContextFilter", "check_smoothing", "filter_tables", "posterior"]


_BLOCK = 1 << 14
_GPU_PIECE = 1 << 20
"""Episodes that a GPU filters at a time, one a thread."""


def posterior(
    model: LatentMDP,
    logs: Logs,
    smoothing: float = 0.0,
    *,
    along: bool = False,
    threads: int | None = None,
    device: str = "cpu",
    engine: Engine | None = None,
) -> Floats:
    """Posterior over contexts after each episode; after all so far where one continues another.

    Parameters
    ----------
    smoothing
        alpha, in [0, 1 / (S Z)].
    along
        Give the belief at every state of every episode instead: row offsets[i] + i + t is the
        belief at time t of episode i, in the layout of `logs.states`.
    threads
        Threads to use; None takes all cores. The result does not depend on it.
    device
        "cpu", or "cuda" for a GPU, which needs complete episodes. The result does not depend on
        it.
    engine
        Where batches of logs are filtered, instead of in `threads`. The result does not depend on
        it.

    Returns
    -------
    (N, M) array, or (number of states, M) with `along`; in a temporary file where logs on disk are
    very long.

    Raises
    ------
    ImpossibleObservationError
        An observation has probability zero in every context still possible, and `smoothing` is 0.
    DeviceError
        There is no GPU, or something is missing in the logs that it is to filter.
    """
    from latentmdp._kernels.belief import posteriors

    require_model(model)
    require_logs("logs", logs)
    logs.validate(model)
    on_device = on_gpu(device)
    if engine is not None or not logs.fits_memory:
        check_smoothing(model, smoothing)
        workers = as_engine(engine, 1 if on_device else threads)
        parts = workers.map(_of_batch, logs.batches(), model, smoothing, along, device)
        rows = logs.n_steps + len(logs) if along else len(logs)
        return rows_on_disk(parts, rows, model.n_contexts)
    logs = logs.read()
    if on_device and not logs.complete:
        raise DeviceError(
            'posterior on device="cuda" needs complete episodes: logs with missing cells or '
            'continued episodes are filtered with device="cpu"'
        )
    table = filter_tables(model, smoothing)
    out = np.empty((logs.states.size if along else len(logs), model.n_contexts))

    begins = np.append(logs.beginnings(), len(logs))
    continues = np.ones(len(logs), np.bool_)
    continues[begins[:-1]] = False

    def work(first: int, last: int) -> tuple[int, int]:
        flat = (logs.states, logs.actions, logs.rewards, logs.offsets, continues)
        scratch = None if logs.complete else np.empty((1, model.n_contexts))
        return posteriors(table, *flat, begins[first], begins[last], along, out, scratch)

    if on_device:
        found = _followed_on_gpu(table, logs, along, out)
    else:
        found = run_blocks(work, blocks(logs.n_individuals, _BLOCK), threads)
    for episode, step in found:
        if episode >= 0:
            raise ImpossibleObservationError(_describe(logs, episode, step))
    return out


def _followed_on_gpu(
    table: Filter, logs: Trajectories, along: bool, out: Floats
) -> list[tuple[int, int]]:
    """Fill `out` piece by piece; gives an impossible (episode, step) of each piece, or (-1, -1)."""
    from latentmdp.engines.cuda.kernels_episodes import Logged, filter_kernel

    device, width, found = gpu(), even_width(table.prior.size), []
    table = device.put(
        table._replace(
            likelihood=widened(table.likelihood, width),
            prior=widened(table.prior, width),
            initial=widened(table.initial, width),
        )
    )
    M, longest = out.shape[1], int(logs.lengths.max(initial=0)) + 1
    bytes_each = longest * (12.0 + 8.0 * M * along) + 8.0 * M + 12.0
    for start, stop in device.pieces(len(logs), bytes_each, _GPU_PIECE):
        offsets = logs.offsets[start : stop + 1]
        steps = slice(int(offsets[0]), int(offsets[-1]))
        states = slice(steps.start + start, steps.stop + stop)
        rows = states if along else slice(start, stop)
        flat = (logs.states[states], logs.actions[steps], logs.rewards[steps], offsets - offsets[0])
        room = device.empty((rows.stop - rows.start, M), np.float64)
        logged = Logged(*device.put(flat), room, device.empty(stop - start, np.int32))
        device.launch(filter_kernel(width, along), stop - start, table, logged)
        step = device.fetch(logged.step)
        out[rows] = device.fetch(room)
        wrong = np.flatnonzero(step >= 0)
        found.append((start + int(wrong[0]), int(step[wrong[0]])) if wrong.size else (-1, -1))
    return found


def _of_batch(batch: Batch, model: LatentMDP, smoothing: float, along: bool, device: str) -> Floats:
    try:
        return posterior(model, batch.read(), smoothing, along=along, threads=1, device=device)
    except ImpossibleObservationError as error:
        told = f"of the episodes from {batch.start} on, {error}"
        raise ImpossibleObservationError(told) from None


class ContextFilter:
    """The filter step by step, for callers in Python.

    A belief is an array (3, M) as the kernel keeps it (`latentmdp._kernels.belief`): its first row
    is the belief as plain numbers. What is given is never changed.

    Parameters
    ----------
    table
        The likelihoods, as `filter_tables` makes them.
    """

    def __init__(self, table: Filter) -> None:
        self.table = table

    @staticmethod
    def holding(belief: Floats) -> Floats:
        """A belief (M,) as the filter keeps it."""
        return np.stack([belief, np.zeros_like(belief), np.zeros_like(belief)])

    def start(self, state: int) -> Floats:
        """The belief at a first state; the prior at one that is impossible."""
        from latentmdp._kernels.belief import reset_belief

        belief = np.empty((3, self.table.prior.size))
        reset_belief(belief, self.table.prior, self.table.initial, state)
        return belief

    def observe(self, belief: Floats, s: int, a: int, next_state: int, z: int) -> Floats:
        """The belief after a step; as it was where the step is impossible in every context."""
        from latentmdp._kernels.belief import observe_step

        after = belief.copy()
        observe_step(after, self.table, s, a, next_state, z)
        return after


def filter_tables(model: LatentMDP, smoothing: float) -> Filter:
    """What the filter's kernels read: the likelihoods of the model's outcomes, and its starts."""
    from latentmdp._kernels.belief import Filter

    check_smoothing(model, smoothing)
    table, likelihood = model.outcomes, model.outcomes.probs
    initial = np.array(model.initial.T, order="C")
    if smoothing > 0.0:
        n_observations = model.n_states * model.n_rewards
        likelihood = smoothing + (1.0 - smoothing * n_observations) * likelihood
        initial[~(model.weights * initial > 0.0).any(axis=1)] = 1.0
    sizes = (model.n_states, model.n_actions, model.n_rewards)
    shared = (table.starts, table.next_state, table.reward, likelihood, model.weights, initial)
    return Filter(sizes, float(smoothing), *(arrays.read_only(array) for array in shared))


def check_smoothing(model: LatentMDP, smoothing: float) -> None:
    """Raise unless alpha lies in [0, 1 / (S Z)]."""
    largest = 1.0 / (model.n_states * model.n_rewards)
    if not 0.0 <= smoothing <= largest:
        raise ValueError(f"smoothing must lie in [0, 1/(S Z)] = [0, {largest:g}], got {smoothing}")


def _describe(logs: Trajectories, episode: int, step: int) -> str:
    states, actions, rewards, _ = logs[episode]
    if step == 0:
        return f"episode {episode}: no context with positive weight starts in state {states[0]}"
    return (
        f"episode {episode}, step {step - 1}: the observation (next state {states[step]}, reward "
        f"index {rewards[step - 1]}) after state {states[step - 1]} and action "
        f"{actions[step - 1]} has probability zero in every context still possible; "
        "smoothing > 0 tolerates it"
    )
