"""Exploring a deterministic LMDP with hidden contexts [kwon2021, Alg. 5 and Thm. A.1].

    for each node (C, s), level by level, and each action a:
        go there and try a, until every outcome (s', r) has been seen with the asked confidence
        one outcome:   (C, s) -> (C, s')
        several:       (C, s) -> (C + (s, a, s', r), s') for each
    solve the graph exactly

A context in which (C, s, a) has an outcome is drawn with probability at least w_min (1/M if the
weights are uniform, as the paper assumes), so n tries miss one of at most k outcomes with
probability at most k (1 - w_min)^n. Action number j gets the share (6 / pi^2) j^-2 of nearly half
the failure probability, which sums to it whatever the number of actions turns out to be. Each
(C, s, a) is explored once and not at every time again, and what an episode does after it has left
the way to its target serves the node it has come to; both keep the guarantee (see `search`).

Probabilities come from `algorithm5.weigh_classes`: exactly if weights are uniform, so that the
policy is optimal with the asked probability, and as frequencies if only `min_weight` is known.

Starts. In a deterministic LMDP the context decides the first state, which is then a distinguishing
observation. A first state that is random given the context can be handled too (`random_start`): the
exploration goes on for each first state by itself. If it does not depend on the context it tells
nothing, and contexts are as likely after it as before. If it does, it is evidence: the contexts
behind a node are no longer equally likely, whatever their weights, so probabilities are frequencies
among the episodes with that first state, and a class of contexts that is less likely there than
`accuracy` may be missed.

Noise. A world in which an outcome is random once in many thousand steps looks deterministic for
long. Of a model it is read from its table. In any other world, after the exploration, episodes with
random actions go on until n steps in a row were as the graph predicts, (1 - max_noise)^n being at
most the failure probability: noise of that size would have shown.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from latentmdp._util import arrays, validation
from latentmdp._util.fields import Fielded
from latentmdp._util.random import RNGLike, philox_key
from latentmdp._util.validation import require_choice
from latentmdp.deterministic.algorithm5 import (
    Explorer,
    SurpriseError,
    require_deterministic,
    warn_of_light_classes,
    weigh_classes,
)
from latentmdp.deterministic.graph import Graph, GraphPolicy, plan_graph
from latentmdp.deterministic.search import ExplorationError
from latentmdp.model import LatentMDP
from latentmdp.worlds import ModelWorld, World, adapt, as_world


@dataclass(frozen=True, eq=False)
class Exploration(Fielded):
    """The result of `explore`.

    Attributes
    ----------
    policy
        Optimal in the graph; a callable of a `History`.
    value, stderr
        Its value, and how uncertain that is (0 if every probability is known exactly).
    episodes
        Episodes used.
    bound
        `episode_bound` of the problem's sizes.
    exact
        Whether the probabilities of the graph are exact (uniform weights, and a first state that
        is fixed by the context or independent of it) or frequencies.

    n_contexts, horizon, failure_probability
        As asked.
    repeats
        The most tries that any action needed.
    restarts
        How often an outcome turned up where none was expected any more.
    max_noise
        Chance outcomes in a larger share of the steps would have shown, with the asked confidence;
        0 for a model, which is read.
    """

    policy: GraphPolicy
    value: float
    stderr: float
    episodes: int
    bound: float
    exact: bool
    n_contexts: int
    horizon: int
    failure_probability: float
    repeats: int
    restarts: int
    max_noise: float = 0.0

    @property
    def graph(self) -> Graph:
        """Nodes and edges, with recorded frequencies and their standard errors."""
        return self.policy.graph


def explore(
    world: Any,
    n_contexts: int,
    horizon: int | None = None,
    failure_probability: float = 0.01,
    rng: RNGLike = 0,
    repeats: Literal["union", "paper"] | int = "union",
    *,
    min_weight: float | None = None,
    accuracy: float = 0.02,
    random_start: bool | Literal["by-context"] | None = None,
    max_noise: float = 1e-4,
) -> Exploration:
    """Find the optimal policy of a deterministic LMDP by interaction alone.

    Parameters
    ----------
    world
        A `LatentMDP`, which is only simulated once it is seen to be deterministic, a Gymnasium
        environment with finite spaces that is deterministic given a context drawn at `reset`, or
        a `World`. After `terminated` nothing more is earned; `truncated` must not come before the
        horizon.
    n_contexts
        M. An upper bound will do if `min_weight` is given.
    horizon
        H; by default the model's, or the environment's own limit.
    failure_probability
        Of missing an outcome or misjudging a probability anywhere.
    repeats
        Tries per action: "union" as the module's text says, "paper" for ceil(3 M ln M) without a
        union bound, or a number.
    min_weight
        A lower bound on the weights of the contexts. None: they are uniform. A warning tells where
        the frequencies contradict it.
    accuracy
        Standard error of probabilities where they are not known to be uniform.
    random_start
        Whether the first state is random given the context: True if it is and does not depend on
        the context, "by-context" if it may. None: as a model says; for an environment
        "by-context", and only if contexts alone cannot explain what is seen.
    max_noise
        Share of steps with a random outcome that must be ruled out before a world other than a
        model counts as deterministic. It takes about ln(1 / failure_probability) / max_noise steps.

    Raises
    ------
    ExplorationError
        The world is not deterministic given its context, or has more contexts than told; with the
        node, the action and the outcomes that show it.
    """
    M = arrays.positive_integer("n_contexts", n_contexts)
    validation.require_inside("failure_probability", failure_probability)
    if min_weight is not None:
        min_weight = validation.number("min_weight", min_weight, 0.0, 1.0, open_low=True)
    if repeats not in ("union", "paper"):
        repeats = arrays.positive_integer("repeats", repeats)
    horizon = arrays.optional_integer("horizon", horizon)
    require_choice("random_start", random_start, (None, True, False, "by-context"))
    max_noise = validation.number("max_noise", max_noise, 0.0, 1.0, open_low=True)
    # An environment need not name its rewards beforehand.
    ready = isinstance(world, World | LatentMDP) or not hasattr(world, "reset")
    adapted = as_world(world) if ready else adapt(world, horizon=horizon, open_rewards=True)
    H = horizon or adapted.space.duration.required("explore")
    weight = 1.0 / M if min_weight is None else min_weight
    explorer = Explorer(adapted, H, philox_key(rng), M, weight, failure_probability, repeats)
    model = adapted.model if isinstance(adapted, ModelWorld) else None
    if model is not None:
        require_deterministic(model)
        random_start = _start_of(model, random_start)
    explorer.random_start = bool(random_start)
    explorer.assume_evidence(accuracy if random_start == "by-context" else None)
    while True:
        try:
            explorer.find_starts()
            explorer.find_outcomes()
            uniform = min_weight is None and not explorer.evident_start
            masses, exact = weigh_classes(explorer, uniform, accuracy)
            if model is None:
                explorer.confirm(max_noise)
            break
        except SurpriseError:
            explorer.restart()
        except ExplorationError:
            if explorer.random_start or random_start is not None or len(explorer.starts) == 1:
                raise
            explorer.assume_evidence(accuracy)
            explorer.restart()
    if min_weight is not None:
        warn_of_light_classes(explorer, min_weight)
    ruled_out = 0.0 if model is not None else max_noise
    return _result(explorer, exact, explorer.graph(masses), ruled_out)


def _start_of(
    model: LatentMDP, declared: bool | Literal["by-context"] | None
) -> bool | Literal["by-context"]:
    """How the first state of a model comes about; raises where the user says otherwise."""
    random = bool(((model.initial > 0.0).sum(axis=1) > 1).any())
    by_context = random and not np.allclose(model.initial, model.initial[0], atol=1e-12)
    if declared is True and by_context:
        raise ValueError(
            "random_start=True says that the first state does not depend on the context, but the "
            'model\'s initial distributions differ: use random_start="by-context" or None'
        )
    if declared is not None:
        return declared
    return "by-context" if by_context else random


def _result(explorer: Explorer, exact: bool, graph: Graph, max_noise: float) -> Exploration:
    policy, value, spread = plan_graph(graph)
    certain = exact and (len(explorer.starts) == 1 or not explorer.random_start)
    fewest = min((n for n in explorer.search.tried if n), default=1)
    samples = explorer.episodes if exact else fewest
    return Exploration(
        policy=policy,
        value=value,
        stderr=0.0 if certain else spread / math.sqrt(samples),
        episodes=explorer.episodes,
        bound=episode_bound(
            explorer.world.space, explorer.M, explorer.weight, horizon=explorer.horizon
        ),
        exact=exact,
        n_contexts=explorer.M,
        horizon=explorer.horizon,
        failure_probability=explorer.failure,
        repeats=explorer.most_repeats,
        restarts=explorer.restarts,
        max_noise=max_noise,
    )


def episode_bound(
    world: Any,
    n_contexts: int,
    min_weight: float | None = None,
    constant: float = 8.0,
    *,
    horizon: int | None = None,
) -> float:
    """The bound of Theorem A.1: constant H S A binom(M S A, M - 1) n, n = max(1, ln(1/w)) / w.

    The last factor is the paper's M log M for w = 1/M. The paper leaves the constant open; with
    the union bound it holds ln(1/failure_probability) and the logarithm of the number of nodes.

    Parameters
    ----------
    world
        Anything with `n_states`, `n_actions` and `horizon`, such as a `LatentMDP`.
    horizon
        H, by default the world's.
    """
    M, S, A = n_contexts, world.n_states, world.n_actions
    w = 1.0 / M if min_weight is None else min_weight
    sets = math.comb(M * S * A, M - 1)
    H = horizon or world.horizon
    return constant * H * S * A * sets * max(1.0, math.log(1.0 / w)) / w
