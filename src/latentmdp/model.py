"""The latent Markov decision process [kwon2021, Def. 1].

At the start of an episode a context m is drawn with probability w_m and stays hidden; then

    s_1 ~ nu_m,    a_t = pi(history),    (s_{t+1}, r_t) ~ P_m(s', r | s_t, a_t),    t = 1..H,

and the value of a policy is V = sum_m w_m E_m^pi [ sum_t discount^{t-1} r_t ]. The joint law
P_m(s', r | s, a) is T_m(s' | s, a) R_m(r | s, a), or T_m(s' | s, a) R_m(r | s, a, s') where the
reward depends on the next state. Rewards take finitely many values (0 and 1 by default). Without a
horizon an episode goes on until a terminal state, or for ever; then the discount is below 1, or the
total reward is bounded: goals, or costs until an end.

An action may be forbidden in a state. A state without any allowed action is terminal: the episode
ends there, and nothing more is earned.

A model is kept as it was given: as dense arrays, or as an outcome table (`latentmdp.outcomes`),
which costs only what it contains. Each is made from the other when it is asked for.

A model may carry hidden rewards, R^hid of [kwon2021, Prop. 3.2]: `bonus` (M, S, A), earned at
each step, and `initial_bonus` (M,), earned once. Planners and `evaluate` count them, agents never
observe them.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from inspect import signature
from typing import Any, Literal, Self, TypeGuard

import numpy as np
from numpy.typing import ArrayLike

from latentmdp import _kernels
from latentmdp._model_table import COLUMNS, by_name, read_model_table
from latentmdp._total_reward import require_bounded
from latentmdp._util import arrays, names, validation
from latentmdp._util.arrays import Flags, Floats, Integers
from latentmdp._util.duration import Duration
from latentmdp._util.fields import Fielded
from latentmdp._util.results import Factual, Worded, extent
from latentmdp.errors import ModelError
from latentmdp.outcomes import (
    ContextVectors,
    Outcomes,
    RunInBlocks,
    at_once,
    check_outcomes,
    dense_joint,
    dense_rewards,
    dense_transitions,
    distinct_amounts,
    numbered,
    outcomes_from_arrays,
    outcomes_from_entries,
    outcomes_from_matrices,
    row_sums,
    with_rewards,
)

__all__ = ["LatentMDP", "RewardModel", "require_horizon", "require_model"]

RewardModel = Literal["state-action", "transition"]
"""Whether a reward depends on (s, a), or on (s, a, s')."""


class LatentMDP(Factual, Fielded):
    """A finite mixture of MDPs over shared states and actions; immutable and validated once.

    Parameters
    ----------
    transitions : (M, S, A, S), or [m][a] sparse matrices (S, S)
        T_m(s' | s, a): an array, or M lists of A matrices of scipy.sparse.
    rewards : (M, S, A), (M, S, A, Z) or (M, S, A, S, Z)
        Bernoulli means, or probabilities over `reward_values`, or those given the next state (not
        for sparse matrices: `from_amounts`, `from_table` and `from_outcomes` take such rewards).
    initial : None, int, (S,), (M, S) or a sparse matrix of that shape
        nu_m(s): uniform over states with an action by default; an integer is a fixed start state.
    weights : None or (M,)
        w_m: uniform by default.
    horizon : int or None
        H, the number of actions in an episode; None for no end but terminal states, with a discount
        below 1 or where the total reward is bounded (`latentmdp._total_reward`): goals, or costs
        until an end.
    discount : float
        In (0, 1].
    reward_values : sequence of Z distinct floats
        What the rewards are worth.
    reward_edges : None or (Z - 1,)
        Where measured rewards are cut into levels, of which `reward_values` are the means: a
        session takes in any reward then.
    bonus, initial_bonus : None, (M, S, A) and (M,)
        Hidden rewards, counted by planners and never observed.
    allowed : None or (S, A) of flags
        Which actions a state has; all by default. A state that has none is terminal. What is given
        for an action that is not allowed is ignored.
    context_names, state_names, action_names : None or sequences of distinct strings
        What sessions, tables and reports call them.
    allow_unvisited : bool
        Accept all-zero rows of `transitions` and of reward probabilities: a row of an empirical
        model that no data support. Nothing follows such a row, so a planner sees no future there.

    Raises
    ------
    ModelError
        Naming the argument, the index and by how much it is off.
    """

    reward_values: Floats
    initial_vectors: ContextVectors  # nu of every state
    weights: Floats
    horizon: int | None
    discount: float
    initial_bonus: Floats | None
    allowed: Flags
    context_names: tuple[str, ...] | None
    state_names: tuple[str, ...] | None
    action_names: tuple[str, ...] | None
    reward_edges: Floats | None
    allow_unvisited: bool
    bonus_vectors: ContextVectors | None  # R^hid of every (s, a)
    _table_rewards: RewardModel | None

    def __init__(
        self,
        transitions: ArrayLike | Sequence[Sequence[Any]],
        rewards: ArrayLike,
        *,
        initial: ArrayLike | None = None,
        weights: ArrayLike | None = None,
        horizon: int | None,
        discount: float = 1.0,
        reward_values: ArrayLike = (0.0, 1.0),
        bonus: ArrayLike | None = None,
        initial_bonus: ArrayLike | None = None,
        allowed: ArrayLike | None = None,
        context_names: Sequence[str] | None = None,
        state_names: Sequence[str] | None = None,
        action_names: Sequence[str] | None = None,
        reward_edges: ArrayLike | None = None,
        allow_unvisited: bool = False,
    ) -> None:
        arguments = locals()
        others = {name: arguments[name] for name in _OTHERS}
        try:
            values = validation.reward_values(reward_values)
            content: dict[str, Any]
            if are_matrices(transitions):
                steps, possible, M = _steps_of(transitions, allowed)
                S, A = possible.shape
                R = validation.rewards(rewards, values, (M, S, A), possible)
                packed = np.moveaxis(R, 0, -1).reshape(S * A, values.size, M)
                table = with_rewards(steps, packed)
                content = {"outcomes": table, "_table_rewards": "state-action"}
            else:
                T = validation.transitions(transitions, allowed, allow_unvisited)
                M, S, A, _ = T.shape
                possible = validation.allowed(allowed, S, A)
                optional = None if allow_unvisited else possible
                R = validation.rewards(rewards, values, (M, S, A), optional, T)
                if np.ndim(rewards) == 3 and S > 1 and np.isin(T, (0.0, 1.0)).all():
                    _doubt_means(np.asarray(rewards))
                content = {"transitions": T, "reward_probs": R, "_table_rewards": None}
            content |= _common_fields(others, M, possible, values)
        except ValueError as error:
            raise ModelError(str(error)) from None
        arrays.store(self, content)
        self.require_bounded_total()

    @classmethod
    def from_outcomes(
        cls,
        starts: ArrayLike,
        next_state: ArrayLike,
        reward: ArrayLike,
        probs: ArrayLike,
        pattern: ArrayLike | None = None,
        *,
        n_states: int,
        horizon: int | None,
        reward_values: ArrayLike = (0.0, 1.0),
        allowed: ArrayLike | None = None,
        reward_model: RewardModel = "transition",
        **others: Any,
    ) -> Self:
        """A model from an outcome table, see `latentmdp.outcomes`.

        Parameters
        ----------
        starts : (S A + 1,)
            The outcomes of row s A + a are starts[s A + a] .. starts[s A + a + 1] - 1.
        next_state, reward : (n,)
            s' and the index of the reward, rising by (s', reward) within a row.
        probs : (n, M), or (P, M) with a pattern
            P_m(s', reward | s, a), each row (s, a) of each context summing to one.
        pattern : None or (n,)
            The row of `probs` that each outcome has, where many have the same; by default each has
            its own. Equal vectors are kept once in any case.
        n_states
            S.
        allowed
            By default the rows that have outcomes.
        reward_model
            "state-action" if rewards and next states are independent given the context.
        others
            As for `LatentMDP`.
        """
        try:
            listed = (
                arrays.as_integers("starts", starts, np.int64),
                arrays.as_integers("next_state", next_state, np.int32),
                arrays.as_integers("reward", reward, np.int32),
                arrays.as_floats("probs", probs),
            )
            table = Outcomes.each(*listed)
            if pattern is not None:
                table = Outcomes(*listed, arrays.as_integers("pattern", pattern, np.int32))
            S = arrays.positive_integer("n_states", n_states)
            A = (table.starts.size - 1) // S
            possible = None if allowed is None else validation.allowed(allowed, S, A)
            values = validation.reward_values(reward_values)
            validation.require_choice("reward_model", reward_model, ("state-action", "transition"))
            unvisited = bool(others.get("allow_unvisited", False))
            check_outcomes(table, S, possible, values.size, unvisited)
        except ValueError as error:
            raise ModelError(str(error)) from None
        if possible is None:
            possible = (np.diff(table.starts) > 0).reshape(S, A)
        others["horizon"] = horizon
        return cls._of_table(table.shared(), possible, values, reward_model, others)

    @classmethod
    def from_amounts(
        cls,
        transitions: ArrayLike | Sequence[Sequence[Any]],
        amounts: ArrayLike | Sequence[Sequence[Any]],
        *,
        horizon: int | None,
        observed: bool = True,
        allowed: ArrayLike | None = None,
        bonus: ArrayLike | None = None,
        **others: Any,
    ) -> Self:
        """A model whose rewards are fixed amounts: any real numbers, costs negative.

        Parameters
        ----------
        transitions
            As for `LatentMDP`: (M, S, A, S), or `[m][a]` sparse matrices.
        amounts : (S, A), (M, S, A), (M, S, A, S), or [m][a] sparse matrices (S, S)
            What (s, a), or (s, a, s'), pays in each context; a sparse matrix pays 0 where it has
            no entry.
        observed
            Whether an agent sees what is paid, so that an amount which depends on the context is
            evidence of it. Otherwise amounts are paid but not seen, and say nothing about the
            context: they become the model's `bonus`, and the only reward seen is 0.
        others
            As for `LatentMDP`.
        """
        try:
            steps, possible, M = _steps_of(transitions, allowed)
            S, A = possible.shape
            paid = _amounts_of(amounts, steps, (M, S, A))
            if observed:
                occur = steps.probs > 0.0
                values, index = distinct_amounts(paid[occur])
                entry, contexts = np.nonzero(occur)
                moves = (steps.rows()[entry], steps.next_state[entry].astype(np.int64))
                entries = (*moves, index, contexts, steps.probs[occur])
                table = outcomes_from_entries(*entries, (M, S, A, values.size))
            else:
                mean = row_sums(steps, steps.probs * paid).reshape(S, A, M)
                hidden = np.moveaxis(mean, -1, 0)
                extra = validation.bonus("bonus", bonus, (M, S, A))
                bonus = hidden if extra is None else hidden + extra
                table, values = steps, np.zeros(1)
            by_pair = np.ndim(amounts) < 4 and not are_matrices(amounts)
        except ValueError as error:
            raise ModelError(str(error)) from None
        others |= {"horizon": horizon, "bonus": bonus}
        model: RewardModel = "state-action" if by_pair or not observed else "transition"
        return cls._of_table(table.shared(), possible, values, model, others)

    @classmethod
    def from_table(
        cls,
        table: Any,
        *,
        horizon: int | None,
        columns: Mapping[str, str] | None = None,
        context: str = "context",
        state: str = "state",
        action: str = "action",
        next_state: str = "next_state",
        probability: str = "probability",
        reward: str = "reward",
        observed: bool = True,
        initial: ArrayLike | Mapping[Any, float] | str | None = None,
        weights: ArrayLike | Mapping[Any, float] | None = None,
        bonus: ArrayLike | None = None,
        **others: Any,
    ) -> Self:
        """A model from a long table: one row for each outcome that is possible in a context.

        Parameters
        ----------
        table
            A frame of any library (pandas, polars, pyarrow, ...), a mapping of columns, a list of
            mappings (rows), or the path of a .csv or .parquet file.
        columns
            What the table calls the columns, by the words of the next parameters:
            `{"context": "idoutcome", "state": "idstatefrom"}`.
        context, state, action, next_state, probability, reward
            The same, one by one. Without a column of contexts there is one context, without a
            column of rewards all are 0; a name that is given must be there.
        observed
            Whether an agent sees what is paid, as in `from_amounts`.
        initial, weights
            As for `LatentMDP`, or probabilities by label; `initial` may also be one label.
        others
            As for `LatentMDP`, without names: they are the labels.

        Notes
        -----
        Labels that are exactly the integers 0 .. n-1 stay numbers. Other integers become names in
        rising order, strings in natural order (`bed2` before `bed10`); contexts stay in the order
        of the table, in which weights are given. States are those of both
        columns. An action is allowed in a state where the pair is listed, which must be so in every
        context or in none; a state that occurs as a next state only is terminal. Rows that agree in
        all but the probability add up.

        Raises
        ------
        ModelError
            Naming the column and the row (from 0, without the header), or context, state and action
            where probabilities do not sum to 1.
        """
        keywords = (context, state, action, next_state, probability, reward)
        called = dict(zip(COLUMNS, keywords))
        for word, name in (columns or {}).items():
            if word not in called:
                raise ModelError(
                    f"columns names {word!r}, which is none of {', '.join(map(repr, COLUMNS))}"
                )
            called[word] = name
        for name in ("context_names", "state_names", "action_names", "allowed", "reward_values"):
            if name in others:
                raise TypeError(f"from_table takes no {name}: the table says it")
        try:
            outcomes, allowed, values, unseen, has_rewards, by_pair, names = read_model_table(
                table, called, observed
            )
            M, (S, A) = outcomes.distinct.shape[1], allowed.shape
            if unseen is not None:
                extra = validation.bonus("bonus", bonus, (M, S, A))
                bonus = unseen if extra is None else unseen + extra
            if not has_rewards and bonus is None:
                warnings.warn("the table has no column 'reward': every reward is 0", stacklevel=2)
            first = by_name("initial", initial, names[1], S, "state")
            shares = by_name("weights", weights, names[0], M, "context")
        except ValueError as error:
            raise ModelError(str(error)) from None
        others |= {"horizon": horizon, "bonus": bonus, "initial": first, "weights": shares}
        others |= dict(zip(("context_names", "state_names", "action_names"), names))
        kind: RewardModel = "state-action" if by_pair else "transition"
        return cls._of_table(outcomes.shared(), allowed, values, kind, others)

    def to_table(self) -> dict[str, Any]:
        """The long table that `from_table` reads, by column; labels are names where there are any.

        It holds the outcomes, not the horizon, the discount, the weights, first states or bonuses.
        """
        table, A = self.outcomes, self.n_actions
        outcome, m = np.nonzero(table.probs > 0.0)
        order = np.lexsort((outcome, m))
        outcome, m = outcome[order], m[order]
        s, a = np.divmod(table.rows()[outcome], A)
        labels = (
            ("context", m, self.context_names),
            ("state", s, self.state_names),
            ("action", a, self.action_names),
            ("next_state", table.next_state[outcome].astype(np.int64), self.state_names),
        )
        columns: dict[str, Any] = {
            word: index if names is None else np.array(names, object)[index]
            for word, index, names in labels
        }
        columns["probability"] = table.distinct[table.pattern[outcome], m]
        columns["reward"] = self.reward_values[table.reward[outcome]]
        return columns

    @classmethod
    def _of_table(
        cls,
        table: Outcomes,
        allowed: Flags,
        values: Floats,
        reward_model: RewardModel,
        others: Mapping[str, Any],
    ) -> Self:
        """A model with a table that is known to be right, and other fields that are checked."""
        unknown = set(others) - set(_OTHERS)
        if unknown:
            raise TypeError(f"LatentMDP got an unknown argument {sorted(unknown)[0]!r}")
        arguments, M = {**_OTHERS, **others}, table.distinct.shape[1]
        try:
            content = _common_fields(arguments, M, allowed, values)
        except ValueError as error:
            raise ModelError(str(error)) from None
        self = cls.__new__(cls)
        arrays.store(self, {"outcomes": table, "_table_rewards": reward_model, **content})
        self.require_bounded_total()
        return self

    def require_bounded_total(self) -> None:
        """Raise `ModelError` where neither an end nor a discount bounds what can be earned."""
        if self.duration.is_total:
            require_bounded(self)

    @classmethod
    def _trusted(cls, like: LatentMDP, **fields: Any) -> LatentMDP:
        """A copy of `like` with some stored arrays changed, unchecked.

        Learners need it: rows of an optimistic model may sum to less than one.
        """
        self = cls.__new__(cls)
        for name in _BY_CONTEXT:
            if fields.get(name) is not None:
                fields[f"{name}_vectors"] = ContextVectors.each(fields.pop(name)).frozen()
        arrays.store(self, {**like._content(), **fields})
        return self

    def __setattr__(self, name: str, *value: object) -> None:
        raise AttributeError(f"a LatentMDP is immutable: use replace({name}=...) for a new one")

    __delattr__ = __setattr__

    @property
    def n_contexts(self) -> int:
        """M, the number of MDPs."""
        return self.weights.shape[0]

    @property
    def n_states(self) -> int:
        """S, the number of states."""
        return self.allowed.shape[0]

    @property
    def n_actions(self) -> int:
        """A, the number of actions."""
        return self.allowed.shape[1]

    @property
    def n_rewards(self) -> int:
        """Z, the number of distinct reward values."""
        return self.reward_values.shape[0]

    @property
    def dimensions(self) -> tuple[int, int, int, int]:
        """M, S, A and Z."""
        return self.n_contexts, self.n_states, self.n_actions, self.n_rewards

    @property
    def n_layers(self) -> int:
        """The number of time steps that a plan tells apart: H, or 1 where there is no end."""
        return self.duration.n_layers

    @cached_property
    def duration(self) -> Duration:
        """How long an episode lasts, and what follows from it."""
        return Duration(self.horizon, self.discount)

    @property
    def is_table(self) -> bool:
        """Whether the model was given as an outcome table rather than as dense arrays."""
        return self._table_rewards is not None

    @cached_property
    def terminal(self) -> Flags:
        """Whether an episode ends in each state, (S,): no action is allowed there."""
        return arrays.frozen(np.logical_not(self.allowed.any(axis=1, keepdims=True)).reshape(-1))

    @cached_property
    def all_allowed(self) -> bool:
        """Whether every action is allowed in every state."""
        return bool(self.allowed.all())

    @property
    def reward_model(self) -> RewardModel:
        """Whether rewards depend on s' too: `reward_probs` is then (M, S, A, S, Z)."""
        if self._table_rewards is not None:
            return self._table_rewards
        return "transition" if self.reward_probs.ndim == 5 else "state-action"

    @cached_property
    def transitions(self) -> Floats:
        """T_m(s' | s, a), shape (M, S, A, S); zero where an action is not allowed."""
        return arrays.frozen(dense_transitions(self.outcomes, self.dimensions))

    @cached_property
    def reward_probs(self) -> Floats:
        """R_m(r | s, a), shape (M, S, A, Z), or R_m(r | s, a, s'), shape (M, S, A, S, Z)."""
        if self.reward_model == "state-action":
            return arrays.frozen(dense_rewards(self.outcomes, self.dimensions))
        joint = np.moveaxis(dense_joint(self.outcomes, self.dimensions), -1, 0)
        return arrays.frozen(arrays.normalised(joint))

    @cached_property
    def outcomes(self) -> Outcomes:
        """What can follow each (s, a), with its probability in every context."""
        return self.tabulate()

    def tabulate(self, run: RunInBlocks | None = None) -> Outcomes:
        """The `outcomes`; where they are still to be made, `run` does it block by block."""
        if "outcomes" not in vars(self):
            table = outcomes_from_arrays(self.transitions, self.reward_probs, run)
            vars(self)["outcomes"] = table.frozen()
        return self.outcomes

    def successors(self, run: RunInBlocks | None = None) -> Outcomes:
        """T_m(s' | s, a) as a table without rewards; `run` makes it block by block."""
        if self.is_table:
            return self.outcomes.successors()
        M, S, A, _ = self.dimensions
        return outcomes_from_arrays(self.transitions, np.ones((M, S, A, 1)), run)

    def observation_probs(self) -> Floats:
        """P_m(s', r | s, a), shape (M, S, A, S, Z)."""
        return np.ascontiguousarray(np.moveaxis(self.packed(), -1, 0))

    def mean_rewards(self) -> Floats:
        """E_m[r | s, a] without the bonus, shape (M, S, A)."""
        if self.is_table:
            M, S, A, _ = self.dimensions
            paid = self.reward_values[self.outcomes.reward]
            means = row_sums(self.outcomes, self.outcomes.probs, paid).T.reshape(M, S, A)
            return np.ascontiguousarray(means)
        if self.reward_model == "transition":
            given_next = self.reward_probs @ self.reward_values
            return np.einsum("msan,msan->msa", self.transitions, given_next)
        return self.reward_probs @ self.reward_values

    @cached_property
    def initial(self) -> Floats:
        """nu_m(s), shape (M, S); where episodes begin alike in all contexts a view of one row."""
        return arrays.frozen(self.initial_vectors.dense())

    @cached_property
    def bonus(self) -> Floats | None:
        """R^hid, shape (M, S, A)."""
        if self.bonus_vectors is None:
            return None
        return arrays.frozen(self.bonus_vectors.dense().reshape(self.dimensions[:3]))

    @property
    def has_bonus(self) -> bool:
        """Whether there is a bonus."""
        return self.bonus_vectors is not None

    def row_rewards(self, run: RunInBlocks | None = None) -> ContextVectors:
        """The `planning_rewards` of the rows s A + a, equal vectors kept once."""
        if self.bonus_vectors is not None and not self.reward_values.any():
            return self.bonus_vectors.shared()
        table = self.tabulate(run)
        # Rows with the same outcomes but for where they lead earn the same.
        outcomes = table.pattern
        if self.n_rewards > 1:
            outcomes = outcomes * np.int64(self.n_rewards) + table.reward
        pattern, first = numbered(table.starts, outcomes)
        distinct = np.zeros((first.size, self.n_contexts))
        (run or at_once)(
            _kernels.tables.row_rewards, first.size, table, first, self.reward_values, distinct
        )
        seen = ContextVectors(distinct, pattern)
        return (seen if self.bonus_vectors is None else seen.plus(self.bonus_vectors)).shared()

    def planning_rewards(self) -> Floats:
        """Mean rewards plus the hidden bonus: what a planner maximises, shape (M, S, A)."""
        if self.is_table and self.has_bonus:
            return self.row_rewards().dense().reshape(self.dimensions[:3])
        means = self.mean_rewards()
        return means if self.bonus is None else means + self.bonus

    def initial_value(self) -> float:
        """sum_m w_m R^hid_init(m): what every policy earns at the start."""
        return 0.0 if self.initial_bonus is None else float(self.weights @ self.initial_bonus)

    def packed(self) -> Floats:
        """P_m(s', r | s, a) context-last, shape (S, A, S, Z, M), as a dense array."""
        return self._packed

    @cached_property
    def _packed(self) -> Floats:
        return arrays.frozen(dense_joint(self.outcomes, self.dimensions))

    @cached_property
    def dense_form(self) -> tuple[Floats, Floats]:
        """Transitions and planning rewards as the dense Bellman backup reads them."""
        earned = _kernels.bellman.dense_rewards(self.planning_rewards())
        return _kernels.bellman.dense_transitions(self.transitions), earned

    def state_numbers(self, what: str, states: ArrayLike | str) -> Integers:
        """The numbers of states given by name or number, one or several; `what` is the argument."""
        # Labels are written in quotation marks.
        words: Any = states.strip('"') if isinstance(states, str) else states
        several = np.atleast_1d(names.listing(what, words))
        if several.dtype.kind == "b" and several.size == self.n_states:
            several = np.flatnonzero(several)
        called, S = self.state_names, self.n_states
        found = [names.to_index(what, word, called, S) for word in several.tolist()]
        return np.array(found, np.int64)

    def reaching(
        self, goal: ArrayLike | str, avoid: ArrayLike | str = (), **changes: Any
    ) -> LatentMDP:
        """The model whose value is the probability of reaching a goal.

        States of the goal end the episode and pay 1; those to `avoid` end it and pay nothing, and
        nothing else pays. A discount below 1 makes it E[discount^(steps - 1); the goal is reached].

        Parameters
        ----------
        goal, avoid
            States by name or number, one or several, or flags (S,).
        changes
            `horizon` and `discount` of the new model; by default those of this one.

        Notes
        -----
        Rewards that tell something about the context are still observed; what they are worth is
        taken off by the `bonus`, so that plans and `evaluate` count the goal only. A first state
        that is a goal pays by `initial_bonus`.
        """
        goals, avoided = self.state_numbers("goal", goal), self.state_numbers("avoid", avoid)
        for both in np.intersect1d(goals, avoided)[:1]:
            state = names.called("state", both, self.state_names)
            raise ValueError(f"{state} is both a goal and to be avoided")
        if not goals.size:
            raise ValueError("goal must name at least one state")
        table, A = self.outcomes, self.n_actions
        ended = np.zeros(self.n_states, np.bool_)
        ended[np.append(goals, avoided)] = True
        table = table.where(~ended[table.rows() // A])
        reached = np.isin(table.next_state, goals)
        merged, pay = table.informative(), dict[str, Any]()
        if merged.successors().size == merged.size:  # rewards say nothing
            pay = {"reward_values": [0.0, 1.0], "bonus": None}
            table = merged._replace(reward=np.isin(merged.next_state, goals).astype(np.int32))
        else:
            worth = reached - self.reward_values[table.reward]
            bonus = row_sums(table, table.probs * worth[:, None])
            pay = {"bonus": bonus.T.reshape(self.n_contexts, self.n_states, A)}
        first = self.initial_vectors.of(goals).sum(axis=0)
        return self.replace(
            outcomes=table,
            reward_model="transition",
            allowed=self.allowed & ~ended[:, None],
            initial_bonus=first if first.any() else None,
            **{**pay, **changes},
        )

    def context(self, m: int) -> LatentMDP:
        """The MDP of context `m` alone, as a latent MDP with one context."""
        return self.subset([m])

    def subset(self, contexts: Iterable[int]) -> LatentMDP:
        """The latent MDP over some contexts, in the order given, weights renormalised."""
        index = np.asarray(list(contexts))
        M = self.n_contexts
        if index.size == 0:
            raise ValueError("contexts must name at least one context")
        if index.ndim != 1 or index.dtype.kind not in "iu":
            raise TypeError(f"contexts must be integers, got {index.tolist()}")
        if index.min() < -M or index.max() >= M:
            raise ValueError(f"contexts must lie in [0, {M}), got {index.tolist()}")
        if np.unique(index % M).size < index.size:
            raise ValueError(f"contexts must be distinct, got {index.tolist()}")
        weights = self.weights[index]
        total = float(weights.sum())
        if total == 0.0:
            raise ValueError(f"contexts {index.tolist()} have total weight zero")
        names = self.context_names
        content: dict[str, Any]
        if self.is_table:
            content = {"outcomes": self.outcomes.select(index % M)}
        else:
            content = {"transitions": self.transitions[index], "rewards": self.reward_probs[index]}
        return self.replace(
            **content,
            initial=self.initial_vectors.select(index),
            weights=weights if index.size == M else weights / total,
            bonus=None if self.bonus_vectors is None else self.bonus_vectors.select(index),
            initial_bonus=None if self.initial_bonus is None else self.initial_bonus[index],
            context_names=None if names is None else [names[i] for i in index],
        )

    def mixture(self) -> LatentMDP:
        """The average MDP, as a latent MDP with one context: T, R and nu averaged over contexts.

        Where some contexts have an all-zero row, the others are averaged.
        """
        w, content = self.weights, dict[str, Any]()
        if self.is_table:
            table = self.outcomes.weighted(w[:, None])
            totals = row_sums(table, table.probs)[table.rows()]
            content["outcomes"] = table.having(table.probs / totals)
            content["reward_model"] = "transition"  # averages of contexts are dependent
        else:
            rewards = np.einsum("m,m...->...", w, self.reward_probs)
            if self.reward_model == "transition":
                rewards = np.einsum("m,msanz->sanz", w, self.observation_probs())
            mean = np.einsum("m,msan->san", w, self.transitions)
            content["transitions"] = arrays.normalised(mean)[None]
            content["rewards"] = arrays.normalised(rewards)[None]
        bonus, first = self.bonus, self.initial_bonus
        return self.replace(
            **content,
            initial=arrays.normalised(w @ self.initial)[None],
            weights=[1.0],
            bonus=None if bonus is None else np.einsum("m,msa->sa", w, bonus)[None],
            initial_bonus=None if first is None else [float(w @ first)],
            context_names=None,
        )

    def distances(self, other: LatentMDP) -> Floats:
        """sum_{s,a} ||P_m - P'_n||_1 for every pair of contexts (m of self, n of other)."""
        for name in ("n_states", "n_actions", "reward_values"):
            one, two = np.asarray(getattr(self, name)), np.asarray(getattr(other, name))
            if not np.array_equal(one, two):
                raise ValueError(f"the models differ in {name}: {one.tolist()} and {two.tolist()}")
        S, Z = self.n_states, self.n_rewards
        tables = [model.outcomes for model in (self, other)]
        numbers = [table.keys(S, Z) for table in tables]
        keys, rows = np.union1d(*numbers), []
        for table, own_keys in zip(tables, numbers):
            probs = np.zeros((keys.size, table.distinct.shape[1]))
            probs[np.searchsorted(keys, own_keys)] = table.probs
            rows.append(probs)
        mine, theirs = rows
        return np.stack([np.abs(column[:, None] - theirs).sum(axis=0) for column in mine.T])

    def align(self, to: LatentMDP) -> LatentMDP:
        """Reorder the contexts so that they match those of `to` as closely as possible.

        The order minimises the sum of L1 distances of the joint distributions (linear assignment).
        """
        if self.n_contexts != to.n_contexts:
            raise ValueError(
                f"align needs as many contexts: {self.n_contexts} here, {to.n_contexts} there"
            )
        from scipy.optimize import linear_sum_assignment

        _, order = linear_sum_assignment(to.distances(self))
        return self.subset(order)

    def replace(self, **changes: Any) -> LatentMDP:
        """A copy with some constructor arguments changed (`rewards` in any of its forms).

        `outcomes` is another outcome table, in place of `transitions` and `rewards`. What follows
        an action that is not `allowed` any more is left out.
        """
        unknown = set(changes) - {*_OTHERS, *_ARRAYS, *_TABLE, "allowed", "reward_values"}
        if unknown:
            raise TypeError(f"replace() got an unknown argument {sorted(unknown)[0]!r}")
        current = {name: getattr(self, name) for name in _OTHERS if name not in _BY_CONTEXT}
        current |= {"initial": self.initial_vectors, "bonus": self.bonus_vectors}
        if "reward_values" in changes:
            current["reward_edges"] = None  # they cut other rewards
        shared = {"reward_values": self.reward_values, "allowed": self._stated_allowed()}
        if "outcomes" in changes or (self.is_table and not set(changes) & {*_ARRAYS}):
            table = changes.pop("outcomes", None)
            if table is None:
                table = self.outcomes
                allowed = changes.get("allowed", self.allowed)
                flags = validation.allowed(allowed, self.n_states, self.n_actions)
                table = table.where(flags.ravel()[table.rows()])
            kind = {"n_states": self.n_states, "reward_model": self.reward_model}
            return type(self).from_outcomes(*table, **{**current, **shared, **kind, **changes})
        dense = {name: changes.pop(name, None) for name in _ARRAYS}
        T = self.transitions if dense["transitions"] is None else dense["transitions"]
        R = self.reward_probs if dense["rewards"] is None else dense["rewards"]
        return type(self)(T, R, **{**current, **shared, **changes})

    def fingerprint(self) -> str:
        """A hexadecimal digest of every field: equal models have equal fingerprints."""
        digest = hashlib.sha256()
        for name, value in self.to_fields().items():
            if name == "outcome_distinct" and value is not None:  # as if every outcome had its own
                pattern = self.outcomes.pattern
                digest.update(f"outcome_probs{(pattern.size, value.shape[1])}".encode())
                for part in np.array_split(pattern, 1 + pattern.size * value.shape[1] // 10**7):
                    digest.update(value[part].tobytes())
            elif name == "outcome_pattern":
                continue
            elif isinstance(value, np.ndarray):
                digest.update(f"{name}{value.shape}".encode())
                for part in np.array_split(value, 1 + value.size // 10**7):
                    digest.update(part.tobytes())
            elif value is not None or name not in _NEW_FIELDS:
                value = tuple(value) if isinstance(value, list) else value
                digest.update(f"{name}={value!r};".encode())
        return digest.hexdigest()

    def to_fields(self) -> dict[str, Any]:
        """Every field by name, None where it is not given: what a file holds."""
        table = self.outcomes if self.is_table else Outcomes(*[None] * 5)  # type: ignore[arg-type]
        return {
            "transitions": None if self.is_table else self.transitions,
            "reward_probs": None if self.is_table else self.reward_probs,
            "reward_values": self.reward_values,
            **{
                name: list(value) if isinstance(value, tuple) else value
                for name, value in ((name, getattr(self, name)) for name in _OTHERS)
            },
            "allowed": self._stated_allowed(),
            **{f"outcome_{name}": array for name, array in table._asdict().items()},
            "reward_model": self.reward_model if self.is_table else None,
        }

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> Self:
        """The model with these fields, validated."""
        others = {
            name: fields[name]
            for name in (*_OTHERS, "reward_values", "allowed")
            if fields.get(name) is not None
        }
        others.setdefault("horizon", None)
        # Files of 0.2 have a vector of probabilities for every outcome.
        parts = [f"outcome_{name}" for name in Outcomes._fields]
        parts[3:] = ["outcome_probs"] if fields.get("outcome_probs") is not None else parts[3:]
        table: list[Any] = [fields.get(name) for name in parts]
        if any(part is not None for part in table):
            for name, part in zip(parts, table):
                if part is None:
                    raise ModelError(f"field {name!r} of the outcome table is missing")
            if any(fields.get(name) is not None for name in ("transitions", "reward_probs")):
                raise ModelError("a model has dense arrays or an outcome table, not both")
            S = np.atleast_2d(np.asarray(fields["initial"])).shape[1]
            kind: Any = fields.get("reward_model") or "transition"
            return cls.from_outcomes(*table, n_states=S, reward_model=kind, **others)
        for name in ("transitions", "reward_probs"):
            if fields.get(name) is None:
                raise ModelError(f"field {name!r} is missing, and there is no outcome table")
        rewards = np.asarray(fields["reward_probs"])
        if rewards.ndim < 4:
            raise ModelError(
                "field 'reward_probs' must have shape (M, S, A, Z) or (M, S, A, S, Z), got "
                f"{rewards.shape}"
            )
        return cls(fields["transitions"], rewards, **others)

    def _stated_allowed(self) -> Flags | None:
        """`allowed` where it does not follow from the other fields.

        A table with `allow_unvisited` may have empty rows of actions that are allowed.
        """
        default = self.all_allowed
        if default and self.is_table:
            default = bool((np.diff(self.outcomes.starts) > 0).all())
        return None if default else self.allowed

    def _content(self) -> dict[str, Any]:
        """What was stored when the model was made, without what was derived since."""
        names = ("outcomes",) if self.is_table else ("transitions", "reward_probs")
        others = {"reward_values", "allowed", "_table_rewards", *_OTHERS}.difference(_BY_CONTEXT)
        vectors = (f"{name}_vectors" for name in _BY_CONTEXT)
        return {name: self.__dict__[name] for name in (*names, *others, *vectors)}

    def __getstate__(self) -> dict[str, Any]:
        return self._content()

    def __setstate__(self, state: dict[str, Any]) -> None:
        arrays.store(self, state)

    def facts(self) -> dict[str, Any]:
        """Its sizes, what it pays and what it calls things."""
        allowed, ends = self.allowed, np.flatnonzero(self.terminal)
        called = [self.state_names[s] for s in ends[:5]] if self.state_names else []
        more = ", ..." if called and ends.size > len(called) else ""
        ends_in = f" ({', '.join(called)}{more})" if called else ""
        return {
            "contexts": self.n_contexts,
            "states": self.n_states,
            "actions": self.n_actions,
            "horizon": Worded(self.horizon, str(self.duration)),
            "discount": self.discount,
            "outcomes": self.outcomes.size,
            "stored_as": "outcome table" if self.is_table else "dense arrays",
            "allowed_pairs": int(allowed.sum()),
            "terminal_states": Worded(ends.size, f"{ends.size}{ends_in}"),
            "reward_values": self.reward_values,
            "mean_reward_range": extent(self.mean_rewards()[:, allowed]),
            "weights": self.weights,
            "fingerprint": self.fingerprint()[:16],
            "bonus_range": None if self.bonus is None else extent(self.bonus[:, allowed]),
            **{name: getattr(self, name) for name in ("context_names", "state_names")},
            "action_names": self.action_names,
        }

    def __repr__(self) -> str:
        values = ", ".join(f"{value:g}" for value in self.reward_values[:4])
        more = ", ..." if self.n_rewards > 4 else ""
        hidden = ", bonus" if self.has_bonus or self.initial_bonus is not None else ""
        discount = "" if self.discount == 1.0 else f", discount={self.discount:g}"
        return (
            f"LatentMDP(contexts={self.n_contexts}, states={self.n_states}, "
            f"actions={self.n_actions}, horizon={self.horizon}, "
            f"rewards={{{values}{more}}}{discount}{hidden})"
        )


_ARRAYS, _TABLE = ("transitions", "rewards"), ("outcomes", "reward_model")
_BY_CONTEXT = ("initial", "bonus")
"""Dense arrays that are made on demand, of the vectors that are kept."""

_OWN = ("self", "transitions", "rewards", "reward_values", "allowed")
_OTHERS: dict[str, Any] = {
    name: None if parameter.default is parameter.empty else parameter.default
    for name, parameter in signature(LatentMDP.__init__).parameters.items()
    if name not in _OWN
}
"""Arguments that every way of making a model takes, with their defaults."""

_NEW_FIELDS = (
    "allowed",
    "reward_edges",
    "reward_model",
    *(f"outcome_{name}" for name in Outcomes._fields),
)


def _common_fields(
    arguments: Mapping[str, Any], M: int, allowed: Flags, values: Floats
) -> dict[str, Any]:
    """The fields that every model has, those named in `_OTHERS` checked."""
    S, A = allowed.shape
    unvisited = bool(arguments["allow_unvisited"])
    discount = validation.discount(arguments["discount"])
    named = {"context_names": M, "state_names": S, "action_names": A}
    bonus = arguments["bonus"]
    if not isinstance(bonus, ContextVectors | None):
        bonus = ContextVectors.each(validation.shaped("bonus", bonus, (M, S, A)))
    return {
        "reward_values": values,
        "allowed": allowed,
        "initial_vectors": _first_states(arguments["initial"], M, allowed, unvisited).frozen(),
        "weights": validation.weights(arguments["weights"], M),
        "horizon": arrays.optional_integer("horizon", arguments["horizon"]),
        "discount": discount,
        "bonus_vectors": None if bonus is None else bonus.where(allowed.ravel()).frozen(),
        "initial_bonus": validation.bonus("initial_bonus", arguments["initial_bonus"], (M,)),
        **{name: validation.names(name, arguments[name], size) for name, size in named.items()},
        "reward_edges": None
        if arguments["reward_edges"] is None
        else validation.reward_edges(arguments["reward_edges"], values),
        "allow_unvisited": unvisited,
    }


def _doubt_means(rewards: Floats) -> None:
    """Warn where rewards alone are taken as chance, in a model whose moves are certain."""
    between = (rewards > 0.0) & (rewards < 1.0)
    if between.any():
        where = arrays.first_index(between)
        warnings.warn(
            f"rewards{list(where)} is {rewards[where]:g}, taken as the probability of a reward of "
            "1 though every move is certain: LatentMDP.from_amounts takes it as what is paid",
            stacklevel=3,
        )


def _first_states(value: Any, M: int, allowed: Flags, unvisited: bool) -> ContextVectors:
    """P(s_1 = s | m) from any form of `initial`."""
    if isinstance(value, ContextVectors):
        return value
    if not hasattr(value, "tocsc"):  # no matrix of scipy, which a dense model need not import
        return ContextVectors.each(validation.initial(value, M, allowed, unvisited))
    if value.shape != (M, len(allowed)):
        raise ValueError(f"initial must have shape {(M, len(allowed))}, got {value.shape}")
    matrix = value.tocsc()
    states = np.flatnonzero(np.diff(matrix.indptr))
    chances = validation.initial(matrix[:, states].toarray(), M, allowed[states], unvisited)
    pattern = np.zeros(len(allowed), np.int64)
    pattern[states] = np.arange(1, states.size + 1)
    return ContextVectors(np.concatenate([np.zeros((1, M)), chances.T]), pattern)


def _steps_of(
    transitions: ArrayLike | Sequence[Sequence[Any]], allowed: ArrayLike | None
) -> tuple[Outcomes, Flags, int]:
    """The table without rewards, the allowed actions and M, from any form of `transitions`."""
    if are_matrices(transitions):
        S = transitions[0][0].shape[0]
        possible = validation.allowed(allowed, S, len(transitions[0]))
        return outcomes_from_matrices(transitions, possible), possible, len(transitions)
    T = validation.transitions(transitions, allowed, False)
    M, S, A, _ = T.shape
    steps = outcomes_from_arrays(T, np.ones((M, S, A, 1)))
    return steps, validation.allowed(allowed, S, A), M


def _amounts_of(amounts: Any, steps: Outcomes, sizes: tuple[int, int, int]) -> Floats:
    """What every outcome of a table without rewards pays in each context, (n, M)."""
    M, S, A = sizes
    rows = steps.rows()
    if are_matrices(amounts):
        if len(amounts) != M or any(len(by_action) != A for by_action in amounts):
            raise ValueError(f"amounts must be {M} lists of {A} sparse matrices, as transitions")
        s, a = np.divmod(rows, A)
        paid = np.zeros((steps.size, M))
        for m, by_action in enumerate(amounts):
            for action, matrix in enumerate(by_action):
                if matrix.shape != (S, S):
                    raise ValueError(
                        f"amounts[{m}][{action}] must have shape {(S, S)}, got {matrix.shape}"
                    )
                here = a == action
                if here.any():  # no entries of a sparse matrix would be a sparse matrix
                    entries = matrix.tocsr()[s[here], steps.next_state[here]]
                    paid[here, m] = np.asarray(entries, np.float64).ravel()
        if not np.isfinite(paid).all():
            raise ValueError("amounts must be finite")
        return paid
    dense = arrays.as_floats("amounts", amounts)
    if dense.shape == (S, A):
        return np.repeat(dense.reshape(-1)[rows][:, None], M, axis=1)
    if dense.shape == (M, S, A):
        return np.ascontiguousarray(dense.reshape(M, -1)[:, rows].T)
    if dense.shape == (M, S, A, S):
        flat = dense.reshape(M, -1)
        return np.ascontiguousarray(flat[:, rows * S + steps.next_state].T)
    raise ValueError(
        f"amounts must have shape {(S, A)}, {(M, S, A)} or {(M, S, A, S)} to fit transitions, "
        f"got {dense.shape}"
    )


def are_matrices(value: object) -> TypeGuard[Sequence[Sequence[Any]]]:
    """Whether an argument is given as `[m][a]` sparse matrices."""
    if not isinstance(value, list | tuple) or not value:
        return False
    first = value[0]
    return isinstance(first, list | tuple) and bool(first) and hasattr(first[0], "tocoo")


def require_model(obj: object) -> None:
    """Raise `TypeError` unless `obj` is a model, as where arguments are swapped."""
    arrays.require_instance("model", obj, LatentMDP)


def require_horizon(model: LatentMDP, what: str) -> int:
    """H; `ModelError` where the model has no end and `what` needs one."""
    return model.duration.required(what)
