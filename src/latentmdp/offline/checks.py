"""Checks of a fitted latent MDP: does anything in the logs predict what the model says is chance?

A model gives every outcome y of a step (the next state, the reward) a distribution given the
history h, by its belief over contexts, and so does an estimate of the logger for actions. If it is
right, then for any function f of the outcome and any covariate x that is known before it

    e = f(y) - E[f(y) | h],    z = sum x e / sqrt(sum x^2 Var[f(y) | h])

has mean 0 and variance 1: e is a martingale difference, so z is a score test of "x predicts f(y)
beyond the model". A *check* is a list of covariates (what was done before, when, how the individual
did so far) and a target (outcomes, actions, leaving). Its p-value is the smallest of its tests
times their number.

**Many looks.** The same checks are made on logs that are simulated in the model, with its logger
and the lengths of the logs. The corrected p-value of a check is the share of them in which some
check, any one, does as badly [westfall1993, single step]. So on logs of the model's own class at
least one false alarm is raised with probability `level` at most. That the model was fitted to the
logs makes residuals smaller, not larger.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple, Self

import numpy as np
from scipy.signal import lfilter
from scipy.sparse import csc_array
from scipy.special import log_ndtr

from latentmdp._util import arrays, names, validation
from latentmdp._util.arrays import Flags, Floats, Indices, Integers
from latentmdp._util.random import RNGLike, as_generator
from latentmdp._util.results import Result, Worded
from latentmdp._util.words import plural
from latentmdp.estimation import final_states
from latentmdp.fit import Fit, logged_behaviour
from latentmdp.logs import Logs, Steps, Trajectories, WeightModel, require_logs
from latentmdp.model import LatentMDP, require_model
from latentmdp.offline.logger import beliefs_of
from latentmdp.offline.optimism_bias import LogSimulator
from latentmdp.offline.references import has_arms
from latentmdp.outcomes import row_sums
from latentmdp.planning import backward_q

_Column = Integers | Indices

_GROUPS = 8
"""States, actions, rewards and times are looked at in so many groups at most: the commonest ones
by themselves, the others together. More would find rarer effects, and dilute common ones."""

_STEPS = 30_000
"""Steps that are looked at, about: an effect that so many do not show changes no decision, and the
forty logs of so many steps take a few seconds."""


@dataclass(frozen=True, eq=False)
class Check(Result):
    """One question to the logs, and its answer.

    Attributes
    ----------
    name, question
        What was asked.
    statistic
        The most extreme z of its tests: standard deviations from what the model says.
    p_value
        Of the check, corrected for all looks of all checks.
    failed
        Whether the logs contradict the model here.
    verdict
        The answer in words.
    advice
        What to do about a failure.
    """

    name: str
    question: str
    statistic: float
    p_value: float
    failed: bool
    verdict: str
    advice: str


@dataclass(frozen=True, eq=False)
class FitChecks(Result):
    """The checks of a model, in a fixed order; iterate over them.

    Attributes
    ----------
    checks
        One for each question that the logs can answer.
    replicates
        Number of simulated logs they were compared with.
    level
        Probability of a false alarm, all checks together.
    """

    checks: tuple[Check, ...]
    replicates: int
    level: float

    def __iter__(self) -> Iterator[Check]:
        return iter(self.checks)

    def __len__(self) -> int:
        return len(self.checks)

    def __getitem__(self, index: int) -> Check:
        return self.checks[index]

    @property
    def failed(self) -> tuple[Check, ...]:
        """Those that speak against the model."""
        return tuple(check for check in self.checks if check.failed)

    def warnings(self) -> tuple[str, ...]:
        """A sentence for each failure."""
        return tuple(f"{check.verdict}: {check.advice}" for check in self.failed)

    def rows(self) -> list[tuple[str, str, str]]:
        """(what was asked, statistic and p-value, verdict) of each."""
        return [
            (
                check.question,
                f"z = {check.statistic:.1f}, p = {check.p_value:.2g}",
                f"{check.verdict}: {check.advice}" if check.failed else check.verdict,
            )
            for check in self.checks
        ]

    def facts(self) -> dict[str, Any]:
        """The failures, or that there are none."""
        text = "\n".join(self.warnings()) or f"none of {plural(len(self), 'check')} failed"
        return {"checks": Worded(list(self.checks), text), "replicates": self.replicates}

    def to_fields(self) -> dict[str, Any]:
        """Everything as plain values."""
        return {**vars(self), "checks": [vars(check) for check in self.checks]}

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> Self:
        """The checks with these fields."""
        return cls(**{**fields, "checks": tuple(Check(**one) for one in fields["checks"])})

    def __repr__(self) -> str:
        failed = ", ".join(check.name for check in self.failed) or "none"
        return f"FitChecks({len(self)} checks, failed: {failed})"


def check_fit(
    logs: Logs, fit: Fit | LatentMDP, rng: RNGLike = 0, *, level: float = 0.05, replicates: int = 39
) -> FitChecks:
    """Check a fitted model against logs, with what speaks against it in words.

    Parameters
    ----------
    logs
        Those that were fitted, or others of the same world and logger.
    fit
        The fit, or any model of these sizes; a model that was not fitted to these logs is checked
        all the same.
    level
        Probability of a false alarm, all checks together, where the model is right.
    replicates
        Number of simulated logs that say what chance alone does.
    """
    require_logs("logs", logs)
    model = fit.model if isinstance(fit, Fit) else fit
    require_model(model)
    validation.require_inside("level", level)
    replicates = arrays.positive_integer("replicates", replicates)
    logs = logs.without_contexts()  # those of a model are not those of the world
    logs.validate(model)
    generator = as_generator(rng)
    held = _some_of(logs, generator)
    final = model.terminal | np.pad(final_states(logs), (0, model.n_states - logs.n_states))
    behaviour = fit.behaviour if isinstance(fit, Fit) else None
    if behaviour is None:
        behaviour = logged_behaviour(logs, sizes=model.dimensions[1:])
    weight_model = fit.weight_model if isinstance(fit, Fit) else None
    setting = _Setting.of(held, model, behaviour, weight_model, final)
    simulator = LogSimulator(held, model, behaviour, final, weight_model)
    simulated = (setting.answers(simulator.simulate(generator)) for _ in range(replicates))
    chance = np.array([max(one.surprise for one in answers) for answers in simulated])
    checks = [
        one.check((1 + int((chance >= one.surprise).sum())) / (1 + replicates), level)
        for one in setting.answers(held)
    ]
    return FitChecks(tuple(checks), replicates, float(level))


def _some_of(logs: Logs, rng: np.random.Generator) -> Trajectories:
    """Individuals by chance with some `_STEPS` steps together, or all."""
    held = logs.held()
    if held.n_steps <= _STEPS:
        return held
    chosen = rng.random(held.n_individuals) < _STEPS / held.n_steps
    return held.take_individuals(np.flatnonzero(chosen))


_EXTREME = 14.0
"""-log of a p-value that comes once in a million by chance, where nothing is simulated."""


def _extreme(
    logs: Trajectories, model: LatentMDP, behaviour: Floats, asked: Callable[[str], bool]
) -> _Finding | None:
    """The worst answer to some questions, by their names, if it is extreme."""
    setting = _Setting.of(logs, model, behaviour, None, model.terminal)
    answers = (one.answer() for one in setting._questions(logs) if asked(one.name))
    worst = max(answers, key=lambda one: one.surprise)
    return worst if worst.surprise > _EXTREME else None


def outcome_warnings(
    logs: Trajectories, model: LatentMDP, rng: np.random.Generator
) -> tuple[str, ...]:
    """What in some logs no latent MDP like this one would show, whoever acted; the worst of it."""
    held = _some_of(logs.without_contexts(), rng)
    behaviour = logged_behaviour(held, sizes=model.dimensions[1:])
    worst = _extreme(
        held, model, behaviour, lambda name: name != "leaving" and "logger" not in name
    )
    return () if worst is None else (f"{worst.in_words()}: {worst.question.advice}",)


def logger_warnings(
    logs: Logs, model: LatentMDP, behaviour: Floats, rng: np.random.Generator
) -> tuple[str, ...]:
    """Whether logged actions depend on more than the state, as `behaviour` (S, A) does not."""
    held = _some_of(logs, rng)
    worst = _extreme(held, model, behaviour, lambda name: name.startswith("logger"))
    if worst is None:
        return ()
    return (
        "the logged actions depend on more than the state, so that estimated probabilities "
        f"pi_b(a | s) are not the logger's ({abs(worst.statistic):.0f} standard deviations): give "
        "behaviour=, by context if the logger knew more than the logs show",
    )


@dataclass(frozen=True)
class _Target:
    """Functions f of what happens at each step: values, what the model expects, and variances.

    Arrays are (n, F); a value that is not known has variance 0. `ranges` (F,) are the largest f
    less the smallest. Steps count as often as their episodes occurred, `counts` (n,).
    """

    names: Sequence[str]
    values: Floats
    expected: Floats
    variance: Floats
    ranges: Floats
    counts: Floats

    @cached_property
    def residuals(self) -> Floats:
        """e, zero where nothing is known."""
        return np.where(self.variance > 0.0, self.values - self.expected, 0.0)

    @cached_property
    def moments(self) -> Floats:
        """(n, 2 F): e and its variance, as often as steps count."""
        return self.counts[:, None] * np.hstack([self.residuals, self.variance])

    def of_worth(self) -> _Target:
        """The directions in which an error of the model is an error of what it promises."""
        names = [name for name in (_WORTH, "the reward") if name in self.names]
        index = [self.names.index(name) for name in names]
        columns = (x[:, index] for x in (self.values, self.expected, self.variance))
        values, expected, variance = columns
        return _Target(names, values, expected, variance, self.ranges[index], self.counts)


class _Covariate(NamedTuple):
    """What is known before: G groups of steps by `label` (n,), -1 for none, or G numbers (n, G).

    The names are those of the groups, or of the numbers.
    """

    names: Sequence[str]
    label: Integers | None = None
    numbers: Floats | None = None


class _Question(NamedTuple):
    """A check: what is asked, what to do if it fails, its target and its covariates."""

    name: str
    question: str
    advice: str
    target: _Target
    covariates: Sequence[_Covariate]

    def answer(self) -> _Finding:
        """The most extreme of all tests."""
        worst, tests, where = 0.0, 0, None
        for covariate in self.covariates:
            z = np.nan_to_num(_scores(self.target, covariate))
            tests += int((z != 0.0).sum())
            if z.size and np.abs(z).max() > abs(worst):
                group, f = np.unravel_index(int(np.abs(z).argmax()), z.shape)
                worst, where = float(z[group, f]), (covariate, int(group), int(f))
        surprise = -float(np.log(2.0 * max(tests, 1)) + log_ndtr(-abs(worst)))
        return _Finding(self, worst, max(surprise, 0.0), where)


class _Finding(NamedTuple):
    """The result of a check on some logs; `surprise` is -log of its p-value.

    `where` is the most extreme test: its covariate, group and f.
    """

    question: _Question
    statistic: float
    surprise: float
    where: tuple[_Covariate, int, int] | None

    def check(self, p_value: float, level: float) -> Check:
        """With a corrected p-value, in words."""
        asked, failed = self.question, p_value <= level and self.where is not None
        verdict = self.in_words() if failed else "nothing speaks against the model"
        return Check(
            asked.name, asked.question, self.statistic, p_value, failed, verdict, asked.advice
        )

    def in_words(self) -> str:
        """What the most extreme test found, as a sentence."""
        assert self.where is not None
        (covariate, group, f), target, z = self.where, self.question.target, self.statistic
        what, name = target.names[f], covariate.names[group]
        if covariate.label is None:
            return f"{what} is {'more' if z > 0 else 'less'} the higher {name} is (z = {z:.1f})"
        each = target.counts * (covariate.label == group) * (target.variance[:, f] > 0.0)
        logged, expected = (
            np.average(np.nan_to_num(x[:, f]), weights=each)
            for x in (target.values, target.expected)
        )
        return (
            f"{what} {name} is {logged:.3g} in the logs and {expected:.3g} in the model "
            f"(z = {z:.1f})"
        )


def _scores(target: _Target, covariate: _Covariate) -> Floats:
    """The z of every group and f, (G, F); NaN where there are too few data.

    A normal distribution needs the variance of several outcomes of the whole range of f.
    """
    F, scale = len(target.names), np.ones((1, 1))
    if covariate.numbers is not None:
        # No dot product: the threads of BLAS cost more than they save at these sizes. Steps lie
        # side by side, which makes it four times as fast.
        numbers, moments = (
            np.ascontiguousarray(table.T) for table in (covariate.numbers, target.moments)
        )
        squares = numbers**2
        score = np.einsum("gn,fn->gf", numbers, moments[:F])
        variance = np.einsum("gn,fn->gf", squares, moments[F:])
        mean_squares = np.einsum("gn,n->g", squares, target.counts) / target.counts.sum()
        scale = mean_squares[:, None]  # numbers differ
    else:
        assert covariate.label is not None
        use = covariate.label >= 0
        # one column a step, with a one in the row of its group where it has one
        ends = np.append(0, np.cumsum(use))
        entries = (np.ones(ends[-1]), covariate.label[use], ends)
        groups = csc_array(entries, shape=(len(covariate.names), use.size))
        score, variance = np.hsplit(np.asarray(groups @ target.moments), 2)
    enough = variance > 5.0 * target.ranges**2 * scale
    none = np.full(score.shape, np.nan)
    return np.asarray(np.divide(score, np.sqrt(variance), out=none, where=enough))


class _Setting(NamedTuple):
    """A model with its logger, and how states, actions and rewards are grouped."""

    model: LatentMDP
    behaviour: Floats  # (1 or M, S, A)
    weight_model: WeightModel | None
    final: Flags
    groups: dict[str, _Groups]
    tables: Floats  # (S A, M, 2, F): means of f and of f^2
    ranges: Floats  # (F,): the largest f less the smallest
    arms: bool  # whether the logger gave each individual one action throughout
    in_order: bool  # whether individuals stand as they were logged: not where alike ones are merged
    values: Floats  # (S,): what a state is worth under the logger, contexts and times together

    @classmethod
    def of(
        cls,
        logs: Trajectories,
        model: LatentMDP,
        behaviour: Floats,
        weight_model: WeightModel | None,
        final: Flags,
    ) -> _Setting:
        """For logs like these."""
        steps = logs.steps()
        labels = {
            "state": names.labels("state", model.state_names, model.n_states),
            "action": names.labels("action", model.action_names, model.n_actions),
            "reward": [f"a reward of {value:.4g}" for value in model.reward_values],
        }
        columns = {"state": logs.states, "action": steps.action, "reward": steps.reward}
        groups = {name: _Groups.commonest(columns[name], labels[name]) for name in columns}
        outcomes = model.outcomes
        rows = behaviour if behaviour.ndim == 3 else behaviour[None]
        worth = _state_values(model, rows, logs.longest)
        values = _features(groups["state"], model, worth, outcomes.next_state, outcomes.reward)[1]
        moments = [
            [row_sums(outcomes, outcomes.probs * power[:, None]) for power in (f, f**2)]
            for f in values.T
        ]
        tables = np.ascontiguousarray(np.array(moments).transpose(2, 3, 1, 0))
        ranges = np.ptp(np.vstack([values, np.zeros(values.shape[1])]), axis=0)
        kind = (has_arms(logs), logs.counts is None)
        return cls(model, rows, weight_model, final, groups, tables, ranges, *kind, worth)

    def answers(self, logs: Trajectories) -> list[_Finding]:
        """All checks on some logs."""
        return [question.answer() for question in self._questions(logs)]

    def _questions(self, logs: Trajectories) -> Iterator[_Question]:
        steps, past = logs.steps(), _Past.of(logs)
        acting, seeing, after = self._beliefs(logs, past)
        counts = logs.step_counts().astype(np.float64)
        outcome = self._with_amounts(logs, seeing, self._outcomes(steps, seeing, counts))
        action, worth = self._actions(steps, acting, counts), outcome.of_worth()
        state, taken = self.groups["state"], self.groups["action"]
        here, doing = state.of(steps.state), taken.of(steps.action)
        so_far = _Covariate(
            [f"what {name} exceeded the model by before" for name in outcome.names],
            numbers=past.before(outcome.residuals),
        )
        order = [
            ("the previous action", past.last(taken, steps.action), _HISTORY.format("actions=1")),
            ("the previous state", past.last(state, steps.state), _HISTORY.format("states=1")),
            ("the previous reward", past.last(self.groups["reward"], steps.reward), _REWARDS),
            ("the time since the action", past.since(steps.action), _COUNTS),
            ("how often the action was taken", past.taken(steps.action), _COUNTS),
            ("the time within the episode", past.time(), _TIME),
        ]
        for name, covariate, advice in order:
            crossed = [_crossed(covariate, doing, taken), _crossed(covariate, here, state)]
            question = f"does {name} predict what follows beyond the model?"
            yield _Question(name, question, advice, outcome, crossed)
        yield _Question(
            "heterogeneity",
            "do individuals differ beyond the contexts of the model?",
            "allow more contexts (max_contexts), give covariates, or look for what moves within "
            "an individual",
            outcome,
            [so_far],
        )
        yield _Question(
            "the last step",
            "does how the last step went tell how this one goes?",
            "something hidden moves within an individual, as regimes do: measure it, or join what "
            "shows it to the state (logs.with_history), and do not rely on the value until then",
            outcome,
            [past.last_surprise(worth, steps.action)],
        )
        if self.in_order:
            yield _Question(
                "the order of individuals",
                "do individuals who were logged later, or side by side, differ beyond the model?",
                "if they stand in the order of time or of places, give these as covariates, and "
                "value the policy from the latest alone (off_policy_value); if the table was "
                "sorted by what individuals are like, shuffle it and look again",
                *past.individuals(worth, doing, taken),
            )
        yield _Question(
            "leaving",
            "do those who leave differ from those who stay, given the model?",
            "record why individuals leave, as a final state or with `terminated`",
            *self._leaving(logs, past, outcome, after),
        )
        if self.arms:
            return
        for name, covariate, _ in (*order[:3], order[5]):
            question = f"do logged actions depend on {name}, given the state and the context?"
            crossed = [covariate, _crossed(covariate, here, state)]
            yield _Question(f"logger: {name}", question, _LOGGER, action, crossed)
        yield _Question(
            "logger: what moves",
            "do logged actions follow something that moves within the episode?",
            _LOGGER,
            action,
            [so_far],
        )

    def _beliefs(self, logs: Trajectories, past: _Past) -> tuple[Floats, Floats, Floats]:
        """Beliefs before each action, before its outcome and after it, (n, M) each."""
        steps = logs.steps()
        along = beliefs_of(self.model, logs, along=True)
        places = np.arange(logs.n_steps) + steps.episode
        with np.errstate(divide="ignore"):
            before, after = np.log(along[places]), np.log(along[places + 1])
            acted = np.log(self.behaviour[:, steps.state, steps.action].T)
            if self.weight_model is not None and logs.covariates is not None:
                design = self.weight_model.encoder.design(logs.covariates)
                tilt = np.log(self.weight_model.weights(design)) - np.log(self.model.weights)
                before, after = before + tilt[steps.episode], after + tilt[steps.episode]
        if acted.shape[1] == 1:
            acted = np.zeros_like(before)
        acted = np.maximum(acted, -700.0)  # impossible by the estimate: exp of it is above 0
        done = past.before(acted)
        shares = arrays.shares_of_logs
        return shares(before + done), shares(before + done + acted), shares(after + done + acted)

    def _outcomes(self, steps: Steps, beliefs: Floats, counts: Floats) -> _Target:
        """Next states, rewards, and rewards by next state."""
        seen = steps.next_state, steps.reward
        labels, values = _features(self.groups["state"], self.model, self.values, *seen)
        pair = steps.state.astype(np.int64) * self.model.n_actions + steps.action
        expected, squares = np.einsum("nm,nmkf->knf", beliefs, self.tables[pair])
        variance = np.maximum(squares - expected**2, 0.0)
        variance[variance < 1e-12 * squares] = 0.0  # certain, up to rounding
        variance[np.isnan(values)] = 0.0
        return _Target(labels, values, expected, variance, self.ranges, counts)

    def _with_amounts(self, logs: Trajectories, beliefs: Floats, outcome: _Target) -> _Target:
        """The same with the amounts of logs whose rewards say nothing.

        Their distribution is not modelled, so each stands for its own variance.
        """
        if logs.amounts is None or self.model.n_rewards > 1:
            return outcome
        steps = logs.steps()
        means = self.model.planning_rewards()[:, steps.state, steps.action]
        expected = np.einsum("nm,mn->n", beliefs, means)[:, None]
        paid = logs.amounts[:, None]
        columns = (paid, expected, np.nan_to_num(paid - expected) ** 2)
        old = (outcome.values, outcome.expected, outcome.variance)
        values, expected, variance = (np.hstack(pair) for pair in zip(old, columns))
        labels, ranges = [*outcome.names, "the amount paid"], np.append(outcome.ranges, 0.0)
        return _Target(labels, values, expected, variance, ranges, outcome.counts)

    def _actions(self, steps: Steps, beliefs: Floats, counts: Floats) -> _Target:
        """Which action was taken."""
        taken = self.groups["action"]
        chosen = taken.of(steps.action)
        rows = self.behaviour @ np.eye(len(taken.names))[taken.number]
        weights = beliefs if len(rows) > 1 else np.ones((chosen.size, 1))
        expected = np.einsum("nk,kng->ng", weights, rows[:, steps.state])
        values = np.eye(len(taken.names))[chosen]
        labels = [f"the share of {name}" for name in taken.names]
        variance = expected * (1.0 - expected)
        return _Target(labels, values, expected, variance, np.ones(len(labels)), counts)

    def _leaving(
        self, logs: Trajectories, past: _Past, outcome: _Target, after: Floats
    ) -> tuple[_Target, list[_Covariate]]:
        """Who leaves before the end, given the time and the state, and what might tell them."""
        steps = logs.steps()
        lasting = (past.t + 1 < logs.longest) & (steps.next_state >= 0)
        lasting &= ~self.final[np.maximum(steps.next_state, 0)]
        stratum = past.t * _GROUPS + self.groups["state"].of(np.maximum(steps.next_state, 0))
        counts, leaves = outcome.counts * lasting, past.leaves.astype(np.float64)
        share = _means(leaves, stratum, counts)
        variance = np.where(lasting, share * (1.0 - share), 0.0)
        values, expected, variance = (x[:, None] for x in (leaves, share, variance))
        target = _Target(["leaving"], values, expected, variance, np.ones(1), outcome.counts)
        contexts = [f"the probability of context {m}" for m in range(after.shape[1])]
        ahead = [f"what {name} exceeded the model by" for name in outcome.names]
        told = np.hstack([after, past.before(outcome.residuals) + outcome.residuals])
        # The shares are estimated: what a covariate has in common with all of a stratum is no test.
        centred = told - np.column_stack([_means(x, stratum, counts) for x in told.T])
        return target, [_Covariate([*contexts, *ahead], numbers=centred)]


def _means(values: Floats, stratum: Integers, counts: Floats) -> Floats:
    """The weighted mean of the stratum of each step."""
    number = np.maximum(np.bincount(stratum, counts), 1e-300)
    return np.asarray((np.bincount(stratum, counts * values) / number)[stratum])


class _Groups(NamedTuple):
    """The commonest values by themselves, the others together: the group of each value."""

    number: Integers
    names: Sequence[str]

    @classmethod
    def commonest(cls, column: _Column, labels: Sequence[str]) -> _Groups:
        """By how often values occur in a column; -1 stands for none."""
        counts = np.bincount(column[column >= 0], minlength=len(labels))
        if counts.size <= _GROUPS:
            return cls(np.arange(counts.size), list(labels))
        common = np.sort(np.argsort(-counts, kind="stable")[: _GROUPS - 1])
        number = np.full(counts.size, _GROUPS - 1)
        number[common] = np.arange(_GROUPS - 1)
        return cls(number, [*(labels[k] for k in common), "any other"])

    def of(self, values: _Column) -> Integers:
        """The groups of some values."""
        return np.where(values < 0, -1, self.number[np.maximum(values, 0)])


def _state_values(model: LatentMDP, behaviour: Floats, steps: int) -> Floats:
    """What the logger earns from each state on, (S,), contexts by weight and times together."""
    table = np.broadcast_to(behaviour, (max(steps, 1), *model.dimensions[:3]))
    backed = backward_q(model, table, model.planning_rewards(), len(table))
    by_context = np.mean([(pi * Q).sum(axis=-1) for pi, Q in backed], axis=0)
    return np.asarray(model.weights @ by_context)


def _features(
    state: _Groups, model: LatentMDP, worth: Floats, next_state: _Column, reward: _Column
) -> tuple[list[str], Floats]:
    """Names and values (n, F) of what is looked at in an outcome; NaN where it is missing.

    Values of states are in `worth` (S,): they and rewards are the directions in which an error of
    the model is an error of what it promises.
    """
    arrived = np.where(next_state[:, None] < 0, np.nan, 1.0)
    arrived = arrived * (state.of(next_state)[:, None] == np.arange(len(state.names)))
    labels = [*(f"the share of moves to {name}" for name in state.names), _WORTH]
    paid = np.where(reward < 0, np.nan, model.reward_values[reward])
    values = np.column_stack([arrived, np.where(next_state < 0, np.nan, worth[next_state])])
    if model.n_rewards == 1:
        return labels, values
    labels += ["the reward", *(f"the reward on a move to {name}" for name in state.names)]
    return labels, np.column_stack([values, paid, paid[:, None] * arrived])


class _Past(NamedTuple):
    """What came before each step: its time, and the steps of its individual."""

    t: Integers
    start: Integers  # first step of the individual
    has_previous: Flags
    leaves: Flags  # last step of the individual

    @classmethod
    def of(cls, logs: Trajectories) -> _Past:
        """Of every step of the logs."""
        offsets, index = logs.individual_offsets(), np.arange(logs.n_steps)
        start = np.repeat(offsets[:-1], np.diff(offsets))
        leaves = np.zeros(logs.n_steps, np.bool_)
        leaves[offsets[1:][np.diff(offsets) > 0] - 1] = True
        return cls(index - start, start, index > logs.offsets[logs.steps().episode], leaves)

    def before(self, values: Floats) -> Floats:
        """The sum of some values over the earlier steps of the individual."""
        sums = np.cumsum(values, axis=0) - values
        return np.asarray(sums - sums[self.start])

    def last(self, groups: _Groups, values: _Column) -> _Covariate:
        """The group of the value one step before."""
        label = np.where(self.has_previous, np.roll(groups.of(values), 1), -1)
        return _Covariate([f"after {name}" for name in groups.names], label)

    def last_surprise(self, worth: _Target, action: _Column) -> _Covariate:
        """What the step before exceeded the model by, as it is and turned where actions differ.

        Something hidden that moves shows in the first, if actions meet it alike, and in the second,
        if what is good for one is bad for the other.
        """
        before = np.where(self.has_previous[:, None], np.roll(worth.residuals, 1, axis=0), 0.0)
        turned = np.where(action == np.roll(action, 1), 1.0, -1.0)[:, None]
        labels = [f"{name} at the last step{turn}" for turn in _TURNS for name in worth.names]
        return _Covariate(labels, numbers=np.hstack([before, turned * before]))

    def individuals(
        self, worth: _Target, doing: Integers, taken: _Groups
    ) -> tuple[_Target, list[_Covariate]]:
        """What each exceeded the model by in all, by group of actions; its place, those before it.

        A drift in time shows by the place in the logs, clusters such as hospitals by the
        individuals before: each counts nine tenths as much as the one after it, so that some ten
        are looked at. Sums stand for their own variance, as individuals may differ for good; in all
        it is at least that of the model, as what is certain is learned as nearly certain.
        """
        number = np.cumsum(self.t == 0) - 1
        N, G, F = int(number.max(initial=-1)) + 1, len(taken.names), len(worth.names)
        totals = np.zeros((N, G, F))
        np.add.at(totals, (number, doing), worth.residuals)
        rows = totals.reshape(N * G, F)
        own = (rows**2).sum(axis=0)
        floor = np.maximum(worth.variance.sum(axis=0) / np.where(own > 0.0, own, np.inf), 1.0)
        columns = (rows, np.zeros_like(rows), rows**2 * floor)
        target = _Target(worth.names, *columns, ranges=np.zeros(F), counts=np.ones(len(rows)))
        place = np.repeat(np.linspace(-0.5, 0.5, N), G)[:, None] * np.tile(np.eye(G), (N, 1))
        before = np.asarray(lfilter([0.0, 1.0], [1.0, -0.9], totals, axis=0))
        alike = np.hstack([np.repeat(before.sum(axis=1), G, axis=0), before.reshape(rows.shape)])
        labels = [f"the place of an individual in the logs, with {name}," for name in taken.names]
        others = [f"{name} of individuals before{how}" for how in _ALIKE for name in worth.names]
        return target, [_Covariate(labels, numbers=place), _Covariate(others, numbers=alike)]

    def since(self, action: _Column) -> _Covariate:
        """How long ago the same action was taken last."""
        index, label = np.arange(action.size), np.zeros_like(self.t)
        for a in np.unique(action):
            chosen = action == a
            latest = np.maximum.accumulate(np.where(chosen, index, -1))
            latest = np.concatenate([[-1], latest[:-1]])
            ago = np.where(latest >= self.start, np.minimum(index - latest, 3), 0)
            label[chosen] = ago[chosen]
        when = ["the first time", "right after itself", "two steps later", "three or more later"]
        return _Covariate([f"with the action {name}" for name in when], label)

    def taken(self, action: _Column) -> _Covariate:
        """How often the same action was taken before."""
        label = np.zeros_like(self.t)
        for a in np.unique(action):
            chosen = action == a
            label[chosen] = self.before(chosen.astype(np.float64))[chosen].astype(np.int64)
        label = np.searchsorted([1, 2, 3, 5], label, side="right")
        times = ["never", "once", "twice", "3 or 4 times", "5 times or more"]
        return _Covariate([f"with the action taken {name} before" for name in times], label)

    def time(self) -> _Covariate:
        """Parts of the episode."""
        parts = min(5, int(self.t.max(initial=0)) + 1)
        edges = np.arange(parts + 1) * (int(self.t.max(initial=0)) + 1) // parts
        label = np.searchsorted(edges, self.t, side="right") - 1
        return _Covariate([f"in steps {a} to {b - 1}" for a, b in pairwise(edges)], label)


def _crossed(covariate: _Covariate, label: Integers, groups: _Groups) -> _Covariate:
    """The groups of a covariate, each apart for every group of states or of actions."""
    size = len(groups.names)
    assert covariate.label is not None
    both = np.where((covariate.label < 0) | (label < 0), -1, covariate.label * size + label)
    return _Covariate([f"{one}, at {two}" for one in covariate.names for two in groups.names], both)


_WORTH = "the value of the next state"
_ALIKE = ("", " with the same action")
_TURNS = ("", ", if of the same action, or lower, if of another,")
_HISTORY = "join it to the state, logs.with_history({}), and solve again"
_COUNTS = "make it a part of the state, or a first step towards it: logs.with_history(actions=1)"
_TIME = "make the time, or a part of the episode, a part of the state"
_REWARDS = "make the last reward a part of the state, or look for what rewards follow"
_LOGGER = (
    "find out what the logger looked at, and make it a part of the state; as it is, what an action "
    "seems to do may be what the logger saw"
)
