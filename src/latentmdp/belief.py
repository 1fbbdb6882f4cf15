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

from latentmdp import _kernels
from latentmdp._util import arrays
from latentmdp._util.arrays import Floats
from latentmdp._util.storage import rows_on_disk
from latentmdp.engines import Engine, Threads, as_engine
from latentmdp.errors import ImpossibleObservationError
from latentmdp.logs import Batch, Logs, Trajectories, require_logs
from latentmdp.model import LatentMDP, require_model

if TYPE_CHECKING:
    from latentmdp.policies import Sized

__all__ = ["ContextFilter", "check_smoothing", "filter_tables", "posterior"]


_BLOCK_STEPS = 1 << 17
"""Steps that one thread filters at a time, about: some milliseconds."""


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
    engine
        Where logs are filtered: in threads of this process by default, see `latentmdp.engines`. A
        GPU needs complete episodes. The result does not depend on it.
    threads, device
        `threads=n` is short for `engine=engines.Threads(n)`, `device="cuda"` for `engines.Cuda()`.

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
    require_model(model)
    require_logs("logs", logs)
    logs.validate(model)
    engine = as_engine(engine, threads, device)
    check_smoothing(model, smoothing)
    if not (isinstance(engine, Threads) and logs.fits_memory):
        parts = engine.map(_of_batch, logs.batches(), model, smoothing, along, engine.within)
        rows = logs.n_steps + len(logs) if along else len(logs)
        return rows_on_disk(parts, rows, model.n_contexts)
    logs = logs.read()
    table, missing = filter_tables(model, smoothing), None if logs.complete else True
    out = np.empty((logs.states.size if along else len(logs), model.n_contexts))
    begins = np.append(logs.beginnings(), len(logs))
    flat = (logs.states, logs.actions, logs.rewards, logs.offsets, begins)
    size = max(1, _BLOCK_STEPS * logs.n_individuals // max(1, logs.n_steps))
    impossible = engine.run(
        _kernels.belief.posteriors, logs.n_individuals, size, table, *flat, along, missing, out
    )
    for episode, step in impossible:
        if episode >= 0:
            raise ImpossibleObservationError(_describe(logs, episode, step))
    return out


def _of_batch(
    batch: Batch, model: LatentMDP, smoothing: float, along: bool, engine: Engine
) -> Floats:
    try:
        return posterior(model, batch.read(), smoothing, along=along, engine=engine)
    except ImpossibleObservationError as error:
        message = f"of the episodes from {batch.start} on, {error}"
        raise ImpossibleObservationError(message) from None


class ContextFilter:
    """The filter step by step, for callers in Python.

    A belief is an array (3, M) as the kernel keeps it (`latentmdp._kernels.belief`): its first row
    is the belief as plain numbers. What is given is never changed.

    Parameters
    ----------
    table
        The likelihoods, as `filter_tables` makes them.
    """

    def __init__(self, table: _kernels.belief.Filter) -> None:
        self.table = table

    @staticmethod
    def holding(belief: Floats) -> Floats:
        """A belief (M,) as the filter keeps it."""
        return np.stack([belief, np.zeros_like(belief), np.zeros_like(belief)])

    def start(self, state: int) -> Floats:
        """The belief at a first state; the prior at one that is impossible."""
        belief = np.empty((3, self.table.prior.size))
        _kernels.belief.reset_belief(
            belief, self.table.prior, self.table.initial, self.table.begins[state]
        )
        return belief

    def observe(self, belief: Floats, s: int, a: int, next_state: int, z: int) -> Floats:
        """The belief after a step; as it was where the step is impossible in every context."""
        after = belief.copy()
        _kernels.belief.observe_step(after, self.table, s, a, next_state, z)
        return after


def filter_tables(model: LatentMDP, smoothing: float) -> _kernels.belief.Filter:
    """What the filter's kernels read: the likelihoods of the model's outcomes, and its starts."""
    check_smoothing(model, smoothing)
    table, likelihood = model.outcomes, model.outcomes.distinct
    initial = np.array(model.initial_vectors.distinct, order="C")
    if smoothing > 0.0:
        n_observations = model.n_states * model.n_rewards
        likelihood = smoothing + (1.0 - smoothing * n_observations) * likelihood
        # A first state that no context can have says nothing: as likely in all of them.
        initial[~(model.weights * initial > 0.0).any(axis=1)] = 1.0
    sizes = (model.n_states, model.n_actions, model.n_rewards)
    first = initial, model.initial_vectors.pattern
    shared = (*table[:3], table.pattern, likelihood, model.weights, *first)
    return _kernels.belief.Filter(
        sizes, float(smoothing), *(arrays.read_only(array) for array in shared)
    )


def check_smoothing(model: Sized, smoothing: float) -> None:
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
