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

Probabilities are found by `explorer.weigh_classes`: exactly if weights are uniform, so that the
policy is optimal with the asked probability, and as frequencies if only `min_weight` is known.

Starts. In a deterministic LMDP the context decides the first state, which is then a distinguishing
observation. A first state that is random given the context can be handled too (`random_start`): it
tells nothing, and the exploration goes on for each first state by itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, Self

from latentmdp._util import arrays
from latentmdp._util.random import RNGLike, philox_key
from latentmdp.deterministic.explorer import Explorer, SurpriseError, weigh_classes
from latentmdp.deterministic.graph import Graph, GraphPolicy, plan_graph
from latentmdp.deterministic.search import ExplorationError
from latentmdp.model import LatentMDP
from latentmdp.worlds import ModelWorld, World, adapt, as_world

__all__ = ["Exploration", "episode_bound", "explore"]


@dataclass(frozen=True)
class Exploration:
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
        Whether the probabilities of the graph are exact (uniform weights) or frequencies.
    graph
        Nodes and edges, with recorded frequencies and their standard errors.
    n_contexts, horizon, failure_probability
        As asked.
    repeats
        The most tries that any action needed.
    restarts
        How often an outcome turned up where none was expected any more.
    """

    policy: GraphPolicy
    value: float
    stderr: float
    episodes: int
    bound: float
    exact: bool
    graph: Graph
    n_contexts: int
    horizon: int
    failure_probability: float
    repeats: int
    restarts: int

    def to_fields(self) -> dict[str, Any]:
        """Every field by name but for `graph`, which is the policy's own."""
        names = (name for name in self.__dataclass_fields__ if name != "graph")
        return {name: getattr(self, name) for name in names}

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> Self:
        """The result with these fields."""
        return cls(graph=fields["policy"].graph, **fields)


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
    random_start: bool | None = None,
) -> Exploration:
    """Find the optimal policy of a deterministic LMDP by interaction alone.

    Parameters
    ----------
    world
        A `LatentMDP`, which is only simulated, a Gymnasium environment with Discrete spaces that
        is deterministic given a context drawn at `reset`, or a `World`. After `terminated` nothing
        more is earned; `truncated` must not come before the horizon.
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
        A lower bound on the weights of the contexts. None: they are uniform.
    accuracy
        Standard error of probabilities where weights are not uniform.
    random_start
        Whether the first state is random, independently of the context. None: as a model says;
        for an environment, only if contexts alone cannot explain what is seen.

    Raises
    ------
    ExplorationError
        The environment is not deterministic given its context, or has more contexts than told;
        with the node, the action and the outcomes that show it.
    """
    M = arrays.positive_integer("n_contexts", n_contexts)
    if not 0.0 < failure_probability < 1.0:
        raise ValueError(f"failure_probability must lie in (0, 1), got {failure_probability}")
    if min_weight is not None and not 0.0 < min_weight <= 1.0:
        raise ValueError(f"min_weight must lie in (0, 1], got {min_weight}")
    if repeats not in ("union", "paper"):
        repeats = arrays.positive_integer("repeats", repeats)
    if horizon is not None:
        arrays.positive_integer("horizon", horizon)
    # An environment need not name its rewards beforehand.
    ready = isinstance(world, World | LatentMDP) or not hasattr(world, "reset")
    place = as_world(world) if ready else adapt(world, horizon=horizon, open_rewards=True)
    H = place.space.horizon if horizon is None else horizon
    if H is None:
        raise ValueError("explore needs horizon=: the world has none")
    weight = 1.0 / M if min_weight is None else min_weight
    explorer = Explorer(place, H, philox_key(rng), M, weight, failure_probability, repeats)
    explorer.random_start = bool(random_start)
    if random_start is None and isinstance(place, ModelWorld):
        explorer.random_start = bool(((place.model.initial > 0.0).sum(axis=1) > 1).any())
    while True:
        try:
            explorer.find_starts()
            explorer.find_outcomes()
            weights = weigh_classes(explorer, min_weight is None, accuracy)
            break
        except SurpriseError:
            explorer.restart()
        except ExplorationError:
            if explorer.random_start or random_start is not None or len(explorer.starts) == 1:
                raise
            explorer.random_start = True
            explorer.restart()
    return _result(explorer, weights.exact, explorer.graph(weights.masses))


def _result(explorer: Explorer, exact: bool, graph: Graph) -> Exploration:
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
        graph=graph,
        n_contexts=explorer.M,
        horizon=explorer.horizon,
        failure_probability=explorer.failure,
        repeats=explorer.most_repeats,
        restarts=explorer.restarts,
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
    H = world.horizon if horizon is None else horizon
    return constant * H * S * A * sets * max(1.0, math.log(1.0 / w)) / w
