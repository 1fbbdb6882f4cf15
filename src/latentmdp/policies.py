"""Policies: what an agent does with the state it sees and the belief it holds.

The common form is **alpha vectors with action labels**, grouped by (t, s): the action is the label
of the vector with the largest product with the belief [kwon2021, App. B.1]. Q-MDP has one vector
per action, point-based planners have sets of them, and a deterministic Markov policy has one
vector per (t, s). A policy graph has such vectors as nodes and says which node follows each
outcome, so that what it earns in every context is known; a mixture draws one of several graphs at
the start of an episode. Stochastic Markov policies are tables of probabilities. Any Python callable
`f(history)` that returns an action, or a probability for each action, is a policy too, on a slow
path.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from latentmdp import _kernels
from latentmdp._util import arrays, names
from latentmdp._util.arrays import Flags, Floats, Indices, Integers
from latentmdp._util.cycles import reaching
from latentmdp._util.duration import Duration
from latentmdp._util.fields import Fielded
from latentmdp._util.random import RNGLike, drawn
from latentmdp._util.results import Factual
from latentmdp._util.spaces import element_of
from latentmdp._util.words import plural
from latentmdp.belief import ContextFilter, check_smoothing, filter_tables
from latentmdp.logs import History, WeightModel
from latentmdp.model import LatentMDP, require_model
from latentmdp.outcomes import Outcomes

if TYPE_CHECKING:
    from latentmdp.sessions import BatchSession, Session

__all__ = [
    "AlphaVectorPolicy",
    "History",
    "HistoryPolicy",
    "Interpreter",
    "MarkovPolicy",
    "Memory",
    "MixturePolicy",
    "Policy",
    "PolicyGraph",
    "PolicyInterpreter",
    "Sized",
    "UniformPolicy",
    "action_table",
    "interpreter",
    "node_moves",
]


HistoryPolicy = Callable[[History], int | ArrayLike]
"""A policy as a function of the history: an action, or a probability for each action."""


class Sized(Protocol):
    """What a policy must fit: a `LatentMDP`, or the `Space` of a world."""

    @property
    def n_states(self) -> int:
        """S."""

    @property
    def n_actions(self) -> int:
        """A."""

    @property
    def n_rewards(self) -> int:
        """Z."""

    @property
    def duration(self) -> Duration:
        """How long an episode lasts."""

    @property
    def allowed(self) -> Flags | None:
        """Which actions each state has, (S, A); None where all have all."""


class Policy(Factual):
    """Base of the policies that run in compiled loops."""

    def acting(self, world: Sized) -> _kernels.rollout.Acting:
        """The policy as arrays for a world of the given sizes; raises if they do not fit."""
        raise NotImplementedError

    weight_model: WeightModel | None = None

    def interpreter(self, world: Sized, key: int = 0) -> PolicyInterpreter:
        """What the policy does next, step by step; raises if the sizes do not fit."""
        return PolicyInterpreter(self, world, key)

    def context_filter(self, model: LatentMDP) -> ContextFilter:
        """The filter of the policy; one that has none is watched by the filter of a model."""
        return ContextFilter(filter_tables(model, 0.0))

    def candidates(self, t: int, state: int, begins: bool = False) -> Integers:
        """The vectors of which the policy follows the one that is best at its belief, if any.

        `begins` says that an episode begins at time 0.
        """
        return np.zeros(0, np.int64)

    def session(
        self,
        model: LatentMDP | None = None,
        rng: RNGLike = None,
        covariates: Mapping[str, Any] | None = None,
    ) -> Session:
        """Follow one individual: `observe(state, reward)` and `act()`.

        Parameters
        ----------
        model
            The world's sizes, horizon and reward values; by default the policy's own model.
        rng
            Chance of a stochastic policy.
        covariates
            What is known of the individual, by name: the belief begins at w(x), which the policy's
            `weight_model` gives, instead of the average weights.
        """
        from latentmdp.sessions import Session

        return Session(self, self._world(model), rng, covariates)

    def predict(
        self,
        observation: Any,
        state: Session | None = None,
        episode_start: bool = False,
        deterministic: bool = True,
        *,
        reward: float | None = None,
        model: LatentMDP | None = None,
    ) -> tuple[Any, Session]:
        """The action for an observation and the session to hand in with the next one.

        The form is that of stable-baselines3, so that a loop written for it runs: `state` is None,
        or `episode_start` True, with the first observation of an episode. Rewards are evidence too:
        without `reward=` the one before this observation counts as missing. The action is what the
        environment's `step` takes: a number or, where actions have several parts, an array.

        Parameters
        ----------
        observation
            The environment's own: an index, a name, or a dict, tuple or array of several parts.
        deterministic
            Taken for the sake of the form; a stochastic policy draws either way.
        model
            As for `session`.
        """
        if state is None or episode_start:
            state = self.session(model)
            state.observe(observation)
        else:
            state.observe(observation, np.nan if reward is None else reward)
        return element_of(state.act_index(), state.model.action_names), state

    def batch_session(
        self,
        individuals: int,
        model: LatentMDP | None = None,
        rng: RNGLike = None,
        covariates: Any = None,
    ) -> BatchSession:
        """Follow many individuals at once; see `latentmdp.sessions`.

        Their covariates are a mapping of columns, a list of mappings, a frame or `Covariates`.
        """
        from latentmdp.sessions import BatchSession

        return BatchSession(self, self._world(model), individuals, rng, covariates)

    def with_weight_model(self, weight_model: WeightModel | None) -> Self:
        """The same policy, whose sessions may begin with the weights of an individual."""
        other = copy(self)
        model = getattr(self, "model", None)
        if weight_model is not None and model is None:
            raise ValueError(f"a {type(self).__name__} has no belief that weights could begin")
        if weight_model is not None and model is not None:
            _require_weights(weight_model, model)
        for name in ("_file", "_digest"):  # it is another policy than the one in the file
            other.__dict__.pop(name, None)
        other.weight_model = weight_model
        return other

    def _world(self, model: LatentMDP | None) -> LatentMDP:
        world = getattr(self, "model", None) if model is None else model
        if world is None:
            raise ValueError(f"a session of a {type(self).__name__} needs model=")
        return world


class UniformPolicy(Fielded, Policy):
    """Every action that a state allows with equal probability, always."""

    def action_probabilities(self, world: Sized) -> Floats:
        """pi(a | s), shape (1, S, A); zero in a terminal state, where nobody acts."""
        if world.allowed is None or world.allowed.all():
            return np.full((1, world.n_states, world.n_actions), 1.0 / world.n_actions)
        return arrays.normalised(world.allowed.astype(np.float64))[None]

    def acting(self, world: Sized) -> _kernels.rollout.Acting:
        """See `Policy.acting`."""
        return _stochastic_acting(self.action_probabilities(world))

    def __repr__(self) -> str:
        return "UniformPolicy()"


class MarkovPolicy(Fielded, Policy):
    """A policy that looks at the time and the state only.

    Parameters
    ----------
    actions : integers (S,) or (H, S); probabilities (S, A) or (H, S, A)
        One action per state, or per time and state; or a distribution over actions for each. What
        is given for a terminal state is ignored.
    """

    actions: NDArray[np.int32] | None
    probabilities: Floats | None

    def __init__(self, actions: ArrayLike) -> None:
        array = np.asarray(actions)
        if array.size == 0:
            raise ValueError(f"actions must not be empty, got shape {array.shape}")
        if array.dtype.kind in "iu" and array.ndim in (1, 2):
            layers = np.atleast_2d(array)
            flat = arrays.as_integers("actions", layers.ravel(), np.int32)
            self.actions, self.probabilities = arrays.frozen(flat.reshape(layers.shape)), None
        elif (array.dtype.kind == "f" and array.ndim == 2) or array.ndim == 3:
            rows = arrays.as_floats("actions", array).reshape(-1, *array.shape[-2:])
            rows = arrays.distributions("actions", rows, ("time", "state"), source=array)
            self.actions, self.probabilities = None, arrays.frozen(rows)
        else:
            raise ValueError(
                "actions must be integers of shape (S,) or (H, S), or probabilities of shape "
                f"(S, A) or (H, S, A); got {array.dtype} of shape {array.shape}"
            )
        self.n_layers, self.n_states = (layers if self.probabilities is None else rows).shape[:2]

    @property
    def stationary(self) -> bool:
        """Whether the same rule holds at every time."""
        return self.n_layers == 1

    def action_probabilities(self, world: Sized) -> Floats:
        """pi_t(a | s), shape (H or 1, S, A), checked against a model or a space.

        Zero in a terminal state, where nobody acts.
        """
        terminal, table = self._require_allowed(world), self.probabilities
        if table is None:
            table = np.asarray(np.eye(world.n_actions)[self.actions])
        return np.where(terminal[:, None], 0.0, table) if terminal.any() else table

    def _require_allowed(self, world: Sized) -> Flags:
        """The terminal states; raises if an action is taken that is not allowed."""
        _require_fit(self.n_layers, self.n_states, world)
        if self.probabilities is not None:
            if (width := self.probabilities.shape[-1]) != world.n_actions:
                raise ValueError(f"the policy has {width} actions, the model {world.n_actions}")
            return _require_open(world, *np.nonzero(self.probabilities))
        assert self.actions is not None
        _require_actions(self.actions, world.n_actions)
        t, s = np.indices(self.actions.shape).reshape(2, -1)
        return _require_open(world, t, s, self.actions.ravel())

    def acting(self, world: Sized) -> _kernels.rollout.Acting:
        """See `Policy.acting`."""
        if self.actions is None:
            return _stochastic_acting(self.action_probabilities(world))
        self._require_allowed(world)
        labels = self.actions.ravel()
        vectors = arrays.read_only(np.zeros((labels.size, 1)))
        offsets = arrays.read_only(np.arange(labels.size + 1))
        labels = arrays.read_only(labels)
        return _kernels.rollout.Acting(
            self.n_layers, vectors=vectors, labels=labels, offsets=offsets
        )

    def to_fields(self) -> dict[str, Any]:
        """`actions`, or `probabilities` of a stochastic policy; the other is None."""
        return {"actions": self.actions, "probabilities": self.probabilities}

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> Self:
        """The policy with these fields, validated."""
        tables = [table for table in fields.values() if table is not None]
        if len(tables) != 1:
            raise ValueError("a Markov policy has either 'actions' or 'probabilities'")
        return cls(tables[0])

    def __repr__(self) -> str:
        kind = "stochastic" if self.actions is None else "deterministic"
        when = "stationary" if self.stationary else plural(self.n_layers, "step")
        return f"MarkovPolicy({kind}, {when}, {plural(self.n_states, 'state')})"


class AlphaVectorPolicy(Fielded, Policy):
    """Act by the label of the alpha vector that is best for the current belief.

    Parameters
    ----------
    vectors : (n, M)
        Alpha vectors: entry m is the value of following the vector's plan in context m.
    actions : (n,)
        The action each vector begins with.
    offsets : (H S + 1,) or (S + 1,)
        The vectors of time t and state s are offsets[t S + s] .. offsets[t S + s + 1] - 1, at
        least one unless s is terminal, all of allowed actions; with S + 1 entries the same sets
        serve at every time.
    model : LatentMDP
        The model whose belief the policy tracks: the world's own, or an estimate of it.
    smoothing : float
        alpha of the belief filter, see `latentmdp.belief`. Without smoothing, an observation that
        is impossible in every context leaves the belief as it was.
    weight_model : WeightModel or None
        Weights of the contexts for an individual whose covariates are known.
    """

    _dense: Floats

    def __init__(
        self,
        vectors: ArrayLike,
        actions: ArrayLike,
        offsets: ArrayLike,
        model: LatentMDP,
        smoothing: float = 0.0,
        weight_model: WeightModel | None = None,
    ) -> None:
        require_model(model)
        check_smoothing(model, smoothing)
        if weight_model is not None:
            _require_weights(weight_model, model)
            self.weight_model = weight_model
        content: dict[str, NDArray[Any]] = {
            "vectors": arrays.as_floats("vectors", vectors),
            "actions": arrays.as_integers("actions", actions, np.int32),
            "offsets": arrays.as_integers("offsets", offsets, np.int64),
        }
        arrays.store(self, content)
        self.model, self.smoothing = model, float(smoothing)
        self.n_layers = (self.offsets.size - 1) // model.n_states
        n, S = self.actions.size, model.n_states
        if self.vectors.shape != (n, model.n_contexts):
            raise ValueError(
                f"vectors must have shape {(n, model.n_contexts)}, got {self.vectors.shape}"
            )
        rest = (self.offsets.size - 1) % S
        if rest or self.n_layers == 0 or self.offsets[0] != 0 or self.offsets[-1] != n:
            raise ValueError(
                f"offsets must cut the {n} vectors into H S or S groups (S = {S}), got "
                f"{self.offsets.size} entries"
            )
        if (np.diff(self.offsets) < 0).any():
            group = int(np.argmax(np.diff(self.offsets) < 0))
            raise ValueError(f"offsets must not fall: time {group // S}, state {group % S}")
        _require_actions(self.actions, model.n_actions)
        self._require_allowed(model)

    @classmethod
    def from_values(
        cls, values: Floats, model: LatentMDP, smoothing: float = 0.0, dense: bool = False
    ) -> AlphaVectorPolicy:
        """One vector per allowed action, from values (layers, allowed (s, a), M), kept as they are.

        The array becomes read-only and is not copied: the values of a large model are large. With
        `dense` they are Q_m(t, s, a) of the dense backup, (M, H, A, W). They are rearranged into
        `vectors`, and labelled, when first needed: a plan that is made and dropped, as in a
        learner's inner loop, never pays for it.
        """
        self = cls.__new__(cls)
        check_smoothing(model, smoothing)
        self.model, self.smoothing = model, float(smoothing)
        self.n_layers = values.shape[1] if dense else len(values)
        if dense:
            self._dense = values
        else:
            self.__dict__["vectors"] = arrays.frozen(values.reshape(-1, model.n_contexts))
        return self

    @classmethod
    def of_arrays(
        cls, vectors: Floats, actions: Indices, offsets: Integers, model: LatentMDP
    ) -> AlphaVectorPolicy:
        """A policy of arrays that a planner made: not checked, kept as they are, read-only now."""
        self = cls.__new__(cls)
        self.model, self.smoothing = model, 0.0
        self.n_layers = (offsets.size - 1) // model.n_states
        arrays.store(self, {"vectors": vectors, "actions": actions, "offsets": offsets})
        return self

    def context_filter(self, model: LatentMDP) -> ContextFilter:
        """See `Policy.context_filter`."""
        return ContextFilter(self._filter)

    def candidates(self, t: int, state: int, begins: bool = False) -> Integers:
        """See `Policy.candidates`."""
        return np.arange(*self.group(t, state))

    def filtering(self, model: LatentMDP, smoothing: float) -> AlphaVectorPolicy:
        """The same vectors, acting by the belief of another filter."""
        return AlphaVectorPolicy(
            self.vectors, self.actions, self.offsets, model, smoothing, self.weight_model
        )

    @cached_property
    def vectors(self) -> Floats:
        """The alpha vectors, shape (n, M)."""
        values = np.ascontiguousarray(self._dense[..., : self.model.n_states].transpose(1, 3, 2, 0))
        if not self.model.all_allowed:
            values = values[:, self.model.allowed]
        return arrays.frozen(values.reshape(-1, self.model.n_contexts))

    @cached_property
    def actions(self) -> Indices:
        """The action that each vector begins with, (n,): every allowed one in turn."""
        labels = np.nonzero(self.model.allowed)[1].astype(np.int32)
        return arrays.frozen(np.tile(labels, self.n_layers))

    @cached_property
    def offsets(self) -> Integers:
        """The first vector of each group, and their number."""
        sizes = np.tile(self.model.allowed.sum(axis=1), self.n_layers)
        return arrays.frozen(np.concatenate([[0], np.cumsum(sizes)]))

    @cached_property
    def _filter(self) -> _kernels.belief.Filter:
        return filter_tables(self.model, self.smoothing)

    def _require_allowed(self, world: Sized) -> None:
        """Raise unless every state that is not terminal has vectors, all of allowed actions."""
        S, sizes = self.model.n_states, np.diff(self.offsets)
        group = np.repeat(np.arange(sizes.size), sizes)
        over = _require_open(world, *np.divmod(group, S), self.actions)
        missing = (sizes.reshape(-1, S) == 0) & ~over
        if missing.any():
            t, s = arrays.first_index(missing)
            where = names.called("state", s, names.names_of(world, "state"))
            raise ValueError(f"time {t}, {where} has no vector")

    def value(self, t: int, state: int, belief: ArrayLike) -> float:
        """The largest product of a vector of (t, state) with the belief."""
        begin, end = self.group(t, state)
        return float((self.vectors[begin:end] @ np.asarray(belief)).max())

    def action(self, t: int, state: int, belief: ArrayLike) -> int:
        """The action taken at (t, state) under a belief; the first of equally good ones."""
        return int(self.actions[self.best(t, state, belief)])

    def best(self, t: int, state: int, belief: ArrayLike) -> int:
        """Which vector of (t, state) has the largest product with the belief; -1 if none is there.

        The first of equally good ones; a terminal state and the time after the last have none.
        """
        if t >= self.n_layers > 1:
            return -1
        row = np.asarray(belief, np.float64).reshape(1, -1)
        return int(
            _kernels.rollout.best_vector(arrays.read_only(self.vectors), *self.group(t, state), row)
        )

    def group(self, t: int, state: int) -> tuple[int, int]:
        """The first of the vectors of (t, state), and the first after them."""
        group = (t if self.n_layers > 1 else 0) * self.model.n_states + state
        return int(self.offsets[group]), int(self.offsets[group + 1])

    def acting(self, world: Sized) -> _kernels.rollout.Acting:
        """See `Policy.acting`."""
        _require_fit(self.n_layers, self.model.n_states, world)
        for name in ("n_actions", "n_rewards"):
            mine, theirs = getattr(self.model, name), getattr(world, name)
            if mine != theirs:
                raise ValueError(f"the policy's model has {name}={mine}, the world {theirs}")
        if world.allowed is not self.model.allowed:
            self._require_allowed(world)
        return _kernels.rollout.Acting(
            self.n_layers,
            filters=bool((np.diff(self.offsets) > 1).any()),
            vectors=arrays.read_only(self.vectors),
            labels=arrays.read_only(self.actions),
            offsets=arrays.read_only(self.offsets),
            filter=self._filter,
        )

    def __repr__(self) -> str:
        when = "stationary" if self.n_layers == 1 else plural(self.n_layers, "step")
        return f"AlphaVectorPolicy({plural(self.actions.size, 'vector')}, {when}, {self.model!r})"


def _require_weights(weight_model: WeightModel, model: LatentMDP) -> None:
    arrays.require_instance("weight_model", weight_model, WeightModel)
    if weight_model.n_contexts != model.n_contexts:
        raise ValueError(
            f"the weight model has {weight_model.n_contexts} contexts, the policy's model "
            f"{model.n_contexts}"
        )


class PolicyGraph(Fielded, Policy):
    """A policy graph (finite-state controller): every node is an action and what follows it.

    Acting by alpha vectors chooses the best one at every belief anew; a graph goes on with the node
    that follows what was seen. So entry m of a node's vector is exactly what the graph earns from
    there in context m, where the vectors solve

        alpha_i(m) = R_m(s, a_i) + discount sum_k P_m(k | s, a_i) alpha_{f(i, k)}(m).

    Parameters
    ----------
    nodes : AlphaVectorPolicy
        The nodes as alpha vectors with actions, grouped by (t, s), or by s.
    followers : integers
        f(i, k): for every node, one after the other, the node that follows each outcome of its
        action in the model's outcome table; -1 where the episode is over.
    first : (S,)
        The node at each first state, -1 in terminal states.
    stays : (n,) flags, optional
        The nodes that list no followers, because they go on with the node at their own place among
        those of whatever state comes next. A plan for one context needs no other: what is seen on
        the way changes nothing.

    Notes
    -----
    After an outcome that its model thinks impossible, or an action that was not its own, the graph
    goes on from the node that is best at the belief.
    """

    weights = arrays.frozen(np.ones(1))
    """Probability of each of its parts: a graph is its only one."""

    def __init__(
        self,
        nodes: AlphaVectorPolicy,
        followers: ArrayLike,
        first: ArrayLike,
        stays: ArrayLike | None = None,
    ) -> None:
        arrays.require_instance("nodes", nodes, AlphaVectorPolicy)
        self.nodes, self.model = nodes, nodes.model
        links = _links("followers", followers)
        self.first = arrays.frozen(_links("first", first).astype(np.int64))
        n, S = nodes.actions.size, self.model.n_states
        self.n_nodes = n
        self.stays = None if stays is None else self._staying(stays)
        groups, rows, table = self._groups(), self._rows(), self.model.outcomes
        counts = table.starts[rows + 1] - table.starts[rows]
        moving = np.ones(n, np.bool_) if self.stays is None else ~self.stays
        self.node_starts = arrays.frozen(np.concatenate([[0], np.cumsum(counts * moving)]))
        if links.shape != (self.node_starts[-1],):
            exception = "" if self.stays is None else " that does not stay"
            raise ValueError(
                f"followers must have {self.node_starts[-1]} entries, one for each outcome of the "
                f"action of each node{exception}, got shape {links.shape}"
            )
        source, outcome = arrays.segments(table.starts, rows[moving])
        layer, following = self._next_layers()[moving][source], table.next_state[outcome]
        over = (layer >= nodes.n_layers) | self.model.terminal[following]
        _require_links("followers", links, np.where(over, -1, layer * S + following), groups)
        self.followers = arrays.frozen(links.astype(np.int32))
        start = np.where(self.model.terminal, -1, np.arange(S))
        if self.first.shape[-1:] != (S,):
            raise ValueError(f"first must have {S} entries, got shape {self.first.shape}")
        for nodes_of_part in np.atleast_2d(self.first):
            _require_links("first", nodes_of_part, start, groups)

    def _groups(self) -> Integers:
        """The group t S + s, or s, of each node."""
        return np.repeat(np.arange(self.nodes.offsets.size - 1), np.diff(self.nodes.offsets))

    def _rows(self) -> Integers:
        """The row of the outcome table that belongs to each node's state and action."""
        states = self._groups() % self.model.n_states
        return states * self.model.n_actions + self.nodes.actions

    def _next_layers(self) -> Integers:
        """The layer of what follows each node: one on, unless its step is like all others."""
        goes_on = self.nodes.n_layers > 1 or self.model.duration.is_over(1)
        return self._groups() // self.model.n_states + goes_on

    def _staying(self, stays: ArrayLike) -> Flags:
        """The flags, if every state of the next step has a node at the place of each that stays."""
        flags, nodes = np.asarray(stays), self.nodes
        if flags.shape != (self.n_nodes,) or flags.dtype != np.bool_:
            raise ValueError(
                f"stays must be {self.n_nodes} flags, one for each node, got shape {flags.shape}, "
                f"dtype {flags.dtype}"
            )
        sizes = np.diff(nodes.offsets).reshape(nodes.n_layers, -1)[:, ~self.model.terminal]
        fewest = np.append(sizes.min(axis=1, initial=self.n_nodes), self.n_nodes)
        groups = self._groups()
        places = np.arange(self.n_nodes) - nodes.offsets[groups]
        later = self._next_layers()
        astray = flags & (places >= fewest[later])
        if astray.any():
            i = int(np.argmax(astray))
            raise ValueError(
                f"stays[{i}] is True: every state that may come next must have a node at place "
                f"{places[i]}, where this node is among those of its own state"
            )
        return arrays.frozen(np.array(flags))

    def links(self) -> _kernels.rollout.Links:
        """What follows the nodes, as kernels read it."""
        stays = np.zeros(self.n_nodes, np.bool_) if self.stays is None else self.stays
        return _kernels.rollout.Links(
            *map(arrays.read_only, (self.node_starts, self.followers, stays))
        )

    def follower(self, node: int, outcome: int) -> int:
        """The node after an outcome, by its number in the model's table, of a node's action.

        -1 where the episode is over.
        """
        group = int(np.searchsorted(self.nodes.offsets, node, side="right")) - 1
        layer, s = divmod(group, self.model.n_states)
        if self.model.duration.is_over(layer + 1):
            return -1
        a, n = int(self.nodes.actions[node]), int(self.model.outcomes.next_state[outcome])
        belief = np.empty((3, self.model.n_contexts))  # plays no part: the outcome is known
        return int(
            _kernels.rollout.next_node(
                self._acting_at_home, node, s, a, outcome, layer + 1, n, belief
            )
        )

    @cached_property
    def _acting_at_home(self) -> _kernels.rollout.Acting:
        return self.acting(self.model)

    def context_filter(self, model: LatentMDP) -> ContextFilter:
        """See `Policy.context_filter`."""
        return self.nodes.context_filter(model)

    def candidates(self, t: int, state: int, begins: bool = False) -> Integers:
        """The first node where an episode begins, otherwise the nodes that can be reached."""
        if begins and t == 0:
            return self.first[state : state + 1]
        nodes = self.nodes.candidates(t, state)
        reached = self.reached_nodes()[nodes]
        return nodes[reached] if reached.any() else nodes

    def reached_nodes(self) -> Flags:
        """Whether the graph can come to each node from one of its first nodes, (n,)."""
        return self._reached

    @cached_property
    def _reached(self) -> Flags:
        nodes, model, begins = self.nodes, self.model, np.zeros(self.n_nodes, np.bool_)
        begins[self.first[self.first >= 0]] = True
        where = (self._rows(), self._groups(), self._next_layers(), nodes.offsets)
        source, target, _ = node_moves(model.outcomes, model.n_states, *where, self.links())
        return reaching(self.n_nodes, target, source, begins)

    def acting(self, world: Sized) -> _kernels.rollout.Acting:
        """See `Policy.acting`."""
        if self.model.duration.is_over(1):
            world.duration.require_covered(1)
        starts = {"reached": np.cumsum(self.weights), "first": np.atleast_2d(self.first)}
        links: dict[str, Any] = {name: arrays.read_only(a) for name, a in starts.items()}
        links |= self.links()._asdict()
        return self.nodes.acting(world)._replace(filters=True, follows=True, **links)

    def __repr__(self) -> str:
        when = "stationary" if self.nodes.n_layers == 1 else plural(self.nodes.n_layers, "step")
        return f"PolicyGraph({plural(self.n_nodes, 'node')}, {when}, {self.model!r})"


class MixturePolicy(PolicyGraph):
    """One of several policy graphs, drawn at the start of every episode.

    Parameters
    ----------
    nodes, followers, stays
        See `PolicyGraph`; the graphs may share nodes.
    first : (K, S)
        The first nodes of each graph.
    weights : (K,)
        Probability of each graph.
    """

    def __init__(
        self,
        nodes: AlphaVectorPolicy,
        followers: ArrayLike,
        first: ArrayLike,
        weights: ArrayLike,
        stays: ArrayLike | None = None,
    ) -> None:
        super().__init__(nodes, followers, np.atleast_2d(np.asarray(first)), stays)
        shares = arrays.as_floats("weights", weights)
        if shares.shape != self.first.shape[:1]:
            raise ValueError(
                f"weights must have {len(self.first)} entries, one for each row of first, got "
                f"shape {shares.shape}"
            )
        self.weights = arrays.frozen(arrays.distributions("weights", shares[None], ("row",))[0])

    @property
    def parts(self) -> tuple[PolicyGraph, ...]:
        """The policy graphs, all with the same nodes."""
        shared = self.nodes, self.followers
        return tuple(PolicyGraph(*shared, first, self.stays) for first in self.first)

    def __repr__(self) -> str:
        shares = ", ".join(f"{weight:.3g}" for weight in self.weights[:6])
        more = ", ..." if self.weights.size > 6 else ""
        return f"MixturePolicy([{shares}{more}], {plural(self.n_nodes, 'node')}, {self.model!r})"


def node_moves(
    table: Outcomes, n_states: int, rows: Integers, groups: Integers, layers: Integers,
    offsets: Integers, links: _kernels.rollout.Links,
) -> tuple[Integers, Integers, Integers]:  # fmt: skip
    """What may follow the nodes of a graph, in their order, where the episode goes on.

    `rows` are those of the table that belong to their actions, `layers` those of what follows.
    """
    source, outcome = arrays.segments(table.starts, rows)
    group = layers[source] * n_states + table.next_state[outcome]
    is_over = group >= offsets.size - 1
    group[is_over] = 0
    # A node that stays goes on at its place among the nodes of the next state.
    target = offsets[group] + source - offsets[groups[source]]
    target[is_over | (target >= offsets[group + 1])] = -1
    target[~links.stays[source]] = links.followers
    goes_on = target >= 0
    return source[goes_on], target[goes_on], outcome[goes_on]


def _links(name: str, values: ArrayLike) -> Integers:
    array = np.asarray(values)
    if array.size and array.dtype.kind not in "iu":
        raise TypeError(f"{name} must hold integers, got dtype {array.dtype}")
    return array if array.size else array.astype(np.int64)


def _require_links(name: str, links: Integers, expected: Integers, groups: Integers) -> None:
    """Raise unless every link is a node of the wanted group, or -1 where there is none."""
    inside = (links >= -1) & (links < groups.size)
    linked = np.where(links < 0, -1, groups[np.where(inside, links, 0)])
    wrong = ~inside | (linked != expected)
    if wrong.any():
        i = int(np.argmax(wrong))
        group = expected[i]
        rule = "-1, the episode is over" if group < 0 else f"a node of group {group}"
        raise ValueError(f"{name}[{i}] is {links[i]}: must be {rule}")


class Memory(NamedTuple):
    """What a policy remembers of an episode, in place of its history."""

    belief: Floats  # (3, M), of its filter, see `latentmdp._kernels.belief`
    node: int  # of a policy graph, -1 of any other
    t: int  # steps so far


class Interpreter:
    """What a policy does next, one individual and one step at a time.

    `start`, `act` and `observe` are all there is to following a policy; a memory is never changed,
    so that many futures can be followed from one. `draw` makes the choice of `act` by chance, and
    `starts` lists what `start` draws from. Here the policy is a function of the history, which is
    its own memory; a `Policy` has a `PolicyInterpreter`.
    """

    def __init__(self, policy: Any, world: Sized) -> None:
        self.policy, self.world = policy, world

    def start(self, state: int, episode: int = 0) -> Any:
        """The memory at a first state; the number of the episode says what a mixture draws."""
        return History((state,), (), ())

    def act(self, t: int, state: int, memory: Any) -> Floats:
        """The probability of each action at time t, (A,)."""
        allowed = None if self.world.allowed is None else self.world.allowed[state]
        asked: Floats = memory.ask(self.policy, self.world.n_actions, allowed)
        return asked

    def observe(self, memory: Any, s: int, a: int, next_state: int, z: int) -> Any:
        """The memory after a step."""
        return memory.then(a, next_state, z)

    def starts(self, state: int) -> list[tuple[float, Any]]:
        """The memories with which an episode may begin in a state, with their probabilities."""
        return [(1.0, self.start(state))]

    def draw(self, t: int, state: int, memory: Any, uniform: float) -> int:
        """The action that a uniform number in [0, 1) selects."""
        return drawn(self.act(t, state, memory), uniform)


class PolicyInterpreter(Interpreter):
    """A `Policy`, by the rules that compiled rollouts follow: the same actions, bit for bit."""

    def __init__(self, policy: Policy, world: Sized, key: int) -> None:
        super().__init__(policy, world)
        self.acting = policy.acting(world)
        self._filter = ContextFilter(self.acting.filter)
        self._table = action_table(policy, world)
        self._key, self._certain = np.uint64(key), np.eye(world.n_actions)

    def starts(self, state: int) -> list[tuple[float, Memory]]:
        """See `Interpreter.starts`."""
        belief = self._filter.start(state) if self.acting.filters else np.ones((3, 1))
        if not self.acting.follows:
            return [(1.0, Memory(belief, -1, 0))]
        shares, nodes = np.diff(self.acting.reached, prepend=0.0), self.acting.first[:, state]
        return [(p, Memory(belief, node, 0)) for p, node in zip(shares.tolist(), nodes.tolist())]

    def start(self, state: int, episode: int = 0) -> Memory:
        """See `Interpreter.start`."""
        _, memory = self.starts(state)[0]
        if not self.acting.follows:
            return memory
        node = _kernels.rollout.first_node(self.acting, self._key, np.uint64(episode), state)
        return memory._replace(node=int(node))

    def vector(self, t: int, state: int, memory: Memory) -> int:
        """The alpha vector in force, by its number; -1 where there is none."""
        return int(_kernels.rollout.followed(self.acting, t, state, memory.belief, memory.node))

    def act(self, t: int, state: int, memory: Memory) -> Floats:
        """See `Interpreter.act`."""
        if self._table is not None:
            return self._table[t if len(self._table) > 1 else 0, state]
        return np.asarray(self._certain[self.draw(t, state, memory, 0.0)])

    def draw(self, t: int, state: int, memory: Memory, uniform: float) -> int:
        """See `Interpreter.draw`."""
        now = (t, state, memory.belief, memory.node, uniform)
        return int(_kernels.rollout.choose(self.acting, *now))

    def observe(self, memory: Memory, s: int, a: int, next_state: int, z: int) -> Memory:
        """See `Interpreter.observe`."""
        beliefs, nodes, t = memory.belief[None].copy(), np.array([memory.node]), memory.t + 1
        before, actions, states = np.array([[s], [a], [next_state]], np.int32)
        step = (np.ones(1, np.bool_), before, actions, states, np.array([z]))
        _kernels.rollout.observe_next(self.acting, t, beliefs, nodes, *step)
        return Memory(beliefs[0], int(nodes[0]), t)


def interpreter(policy: Any, world: Sized, key: int = 0) -> Interpreter:
    """What a policy does next in a world; raises if it does not fit its sizes.

    `key` is that of the chance of a mixture.
    """
    if isinstance(policy, Policy):
        return policy.interpreter(world, key)
    if not callable(policy):
        raise TypeError(
            f"policy must be a Policy or a callable of a history, got {type(policy).__name__}"
        )
    return Interpreter(policy, world)


def action_table(policy: Policy | HistoryPolicy, world: Sized) -> Floats | None:
    """pi_t(a | s) of a Markov policy, shape (H or 1, S, A); None for other policies."""
    if isinstance(policy, UniformPolicy | MarkovPolicy):
        return policy.action_probabilities(world)
    return None


def _stochastic_acting(probabilities: Floats) -> _kernels.rollout.Acting:
    """A table pi_t(a | s), shape (H or 1, S, A)."""
    threshold, alias = _kernels.alias.alias_tables(probabilities)
    return _kernels.rollout.Acting(
        len(probabilities), stochastic=True, action_threshold=threshold, action_alias=alias
    )


def _require_open(world: Sized, t: Integers, s: Integers, a: Integers | Indices) -> Flags:
    """The terminal states, (S,); raises if an action taken at (t, s) elsewhere is forbidden."""
    if world.allowed is None or world.allowed.all():
        return np.zeros(world.n_states, np.bool_)
    terminal = np.asarray(~world.allowed.any(axis=1))
    for i in np.flatnonzero(~world.allowed[s, a] & ~terminal[s])[:1]:
        when = f"time {t[i]}: " if t[-1] > 0 else ""
        reason = names.forbidden(int(s[i]), int(a[i]), world)
        raise ValueError(f"{when}{reason}, but the policy takes it")
    return terminal


def _require_fit(n_layers: int, n_states: int, world: Sized) -> None:
    """Raise unless a policy covers the states and the horizon of a world."""
    if n_states != world.n_states:
        raise ValueError(f"the policy has {n_states} states, the model {world.n_states}")
    if n_layers > 1:
        world.duration.require_covered(n_layers)


def _require_actions(labels: NDArray[np.int32], n_actions: int) -> None:
    """Raise unless every label is an action, naming the largest."""
    if int(labels.max()) >= n_actions:
        where = arrays.first_index(labels == labels.max())
        raise ValueError(
            f"actions{list(where)} is {labels[where]}: must be below n_actions={n_actions}"
        )
