"""How logged actions were chosen: the probabilities pi_b of an off-policy estimate.

They are given by state, by context and state, or by the policy that acted; they are the
propensities of the logs; or they are estimated from the logs, as pi_b(a | s). A policy is followed
along the logs in any case, history by history: `followed`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from latentmdp._util import arrays
from latentmdp._util.arrays import Floats, Integers
from latentmdp._util.validation import shaped
from latentmdp.belief import posterior
from latentmdp.errors import ImpossibleObservationError
from latentmdp.fit import shares_of
from latentmdp.logs import Trajectories
from latentmdp.model import LatentMDP
from latentmdp.planning import acting_smoothing
from latentmdp.policies import HistoryPolicy, Policy
from latentmdp.sessions import BatchSession

AnyPolicy = Policy | HistoryPolicy


class Logger(NamedTuple):
    """How the logged actions were chosen.

    `probabilities` (n_steps, K) are those of the logged actions, by context where the logger knew
    it (K = M), and `shares` (N, K) say how much of each episode counts in each context.
    """

    probabilities: Floats
    shares: Floats
    source: str
    warnings: tuple[str, ...] = ()


def logger_of(
    logs: Trajectories,
    behaviour: ArrayLike | AnyPolicy | None,
    world: LatentMDP,
    model_given: bool,
    numbers: Integers | None = None,
) -> Logger:
    """Read the probabilities of the logged actions; raises where one is zero.

    They are the logs' own propensities where no `behaviour` is given. `numbers` are those
    of the episodes, for the message.
    """
    everyone = np.ones((len(logs), 1))
    steps = logs.steps()
    if behaviour is None:
        assert logs.propensities is not None
        chances = np.asarray(logs.propensities, np.float64)[:, None]
        logger = Logger(chances, everyone, "propensities")
    elif isinstance(behaviour, Policy) or callable(behaviour):
        logger = Logger(_along(logs, behaviour, world)[:, None], everyone, "policy")
    else:
        table = arrays.to_array("behaviour", behaviour)
        M, S, A = world.n_contexts, world.n_states, world.n_actions
        if table.ndim != 3:
            rows = shaped("behaviour", table, (S, A))
            rows = arrays.distributions("behaviour", rows, ("state",))
            logger = Logger(rows[steps.state, steps.action][:, None], everyone, "given")
        elif not model_given:
            raise ValueError("behaviour by context needs model=, the model with those contexts")
        else:
            rows = shaped("behaviour", table, (M, S, A))
            rows = arrays.distributions("behaviour", rows, ("context", "state"))
            chances = rows[:, steps.state, steps.action].T
            shares = shares_of(world, logs, rows)
            logger = Logger(chances, shares, "by context", _not_told_apart(shares))
    impossible = ~(logger.probabilities > 0.0).any(axis=1)
    if impossible.any():
        k = int(np.argmax(impossible))
        episode = int(steps.episode[k])
        state, action = logs.pair(int(steps.state[k]), int(steps.action[k]))
        raise ValueError(
            f"behaviour gives probability 0 to action {action} in state {state}, logged in episode "
            f"{episode if numbers is None else numbers[episode]}, "
            f"step {k - int(logs.offsets[episode])}"
        )
    return logger


def _not_told_apart(shares: Floats) -> tuple[str, ...]:
    certain = float(shares.max(axis=1).mean())
    if certain >= 0.9:  # episodes count as sorted by context
        return ()
    return (
        f"the logs hardly tell the contexts apart: the likeliest one has a posterior of "
        f"{certain:.2f} on average, so the estimate leans on the model",
    )


def beliefs_of(model: LatentMDP, logs: Trajectories, along: bool = False) -> Floats:
    """`posterior`, smoothed as an acting filter where something impossible was logged."""
    try:
        return posterior(model, logs, along=along)
    except ImpossibleObservationError:
        smoothing = acting_smoothing(model.n_states, model.n_rewards)
        return posterior(model, logs, smoothing, along=along)


def followed(
    logs: Trajectories, policy: AnyPolicy, world: LatentMDP, episodes: Integers, steps: int
) -> Iterator[tuple[Integers, Floats]]:
    """Episodes of one length L at a time, and pi(a | h_t) for t = 0..min(L, steps), (n, ., A).

    The last entry is what the policy would do after the last step; zero where the episode is over
    or its last state is missing.
    """
    lengths = logs.lengths[episodes]
    # States that are known after the first: a last one may be missing.
    known_steps = lengths - (logs.last_states[episodes] < 0)
    for length, reached in np.unique(np.column_stack([lengths, known_steps]), axis=0).tolist():
        of_length = episodes[(lengths == length) & (known_steps == reached)]
        last = min(length, steps)
        # Four million numbers by episode, step, context and action lie in memory at a time.
        room = max(1, (1 << 22) // ((last + 1) * world.n_actions * world.n_contexts))
        for start in range(0, of_length.size, room):
            members = of_length[start : start + room]
            states, actions, earned = logs[members].as_arrays()
            values = world.reward_values[earned]
            session = BatchSession(policy, world, members.size, 0)
            session.observe(states[:, 0])
            chances = np.zeros((members.size, last + 1, world.n_actions))
            for t in range(min(last, reached) + 1):
                chances[:, t] = session.action_probabilities()
                if t < min(last, reached) and not session.over.all():
                    # What its model does not allow a policy never does: the ratio is 0 from here
                    # on, whatever it sees, so that any other action may stand for it.
                    done, allowed = actions[:, t], world.allowed[states[:, t]]
                    known = np.take_along_axis(allowed, done[:, None], axis=1)[:, 0]
                    taken = np.where(known, done, allowed.argmax(axis=1))
                    session.observe(states[:, t + 1], values[:, t], taken)
            yield members, chances


def _along(logs: Trajectories, policy: AnyPolicy, world: LatentMDP) -> Floats:
    """pi(a_t | h_t) of every logged action, shape (n_steps,)."""
    probabilities = np.ones(logs.n_steps)
    steps = world.duration.within(int(logs.lengths.max()))
    for members, chances in followed(logs, policy, world, np.arange(len(logs)), steps):
        for t in range(chances.shape[1] - 1 if chances.shape[1] > 1 else 0):
            step = logs.offsets[members] + t
            probabilities[step] = chances[np.arange(members.size), t, logs.actions[step]]
    return probabilities
