"""Optimism bias of a policy planned in a fitted model, estimated by a parametric bootstrap.

A planner chooses the policy whose value in the fitted model is largest, so it also chooses among
the errors of the fit: the value in that model is too high on average (the optimizer's curse
[smith2006]). By how much is estimated as [efron1986] estimates the optimism of a prediction rule.
With V(pi; M) the value of policy pi in model M and M^ the model fitted to the logs, repetition b

    simulates logs in M^ under the logged behaviour, fits M*_b to them, plans pi*_b in M*_b, and
    gives d_b = V(pi*_b; M*_b) - V(pi*_b; M^).

The optimism bias is the mean of d_b; their spread measures how uncertain the value is. The spread
of the parameters of M*_b gives the standard errors of those of M^; fits that begin at M^ keep the
order of its contexts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from latentmdp._util.arrays import Flags, Floats, Integers
from latentmdp._util.results import Result
from latentmdp.engines import Engine, as_engine
from latentmdp.estimation import EM, cut_short, only_tried, restricted
from latentmdp.fit import Fit, without_fit_warnings
from latentmdp.logs import Trajectories, WeightModel
from latentmdp.metrics import Interval
from latentmdp.model import LatentMDP, require_horizon
from latentmdp.offline.references import Rule, always, has_arms, possible, rule_value
from latentmdp.planning import Planner, evaluate
from latentmdp.policies import Policy
from latentmdp.simulation import simulate

EPISODES = 20_000
"""Simulated to value a policy in a model: the standard error is 1/141 of the standard deviation of
a return. More would cost time, and gain little as long as the logs hold fewer episodes."""


_DENSE = 1_000_000
"""Transition probabilities whose standard errors are kept at most: of larger models nobody reads
them one by one."""


@dataclass(frozen=True, eq=False)
class StandardErrors(Result):
    """Standard errors of a fit's parameters, by the bootstrap.

    Attributes
    ----------
    weights : (M,)
    initial : (M, S)
    rewards : (M, S, A)
        Of mean rewards.
    transitions : (M, S, A, S) or None
        None in a model with more than a million of them.
    covariates : (M, d) or None
        Of the coefficients of the covariates in `fit.weight_model`, where they matter.
    """

    weights: Floats
    initial: Floats
    rewards: Floats
    transitions: Floats | None = None
    covariates: Floats | None = None

    @classmethod
    def of(cls, refits: Sequence[Sequence[Any]]) -> StandardErrors:
        """From the parameters of refits, in the order of the fields."""
        spreads: list[Any] = [
            None if column[0] is None else np.std(column, axis=0, ddof=1) for column in zip(*refits)
        ]
        return cls(*spreads)


def bootstrap_differences(
    logs: Trajectories,
    fit: Fit,
    planner: Planner,
    behaviour: Floats,
    final: Flags,
    repeats: int,
    rng: np.random.Generator,
    engine: Engine | None = None,
    world: LatentMDP | None = None,
    references: Sequence[Rule] = (),
) -> tuple[Floats, StandardErrors]:
    """The differences d_b of the policy and R `references`, (repeats, 1 + R), and standard errors.

    A reference is not planned, so that its differences show the uncertainty of its value alone.
    Policies are planned and valued over the steps of `world`, by default of the fitted model.

    The logged `behaviour` is (S, A), or (M, S, A) where the logger knew the context. The strengths
    of the pseudo-counts were themselves chosen from the logs, so each repetition draws its own:
    those of the fit, or one step of their grid up or down. Simulated episodes are cut where the
    logged ones were, except where those reached a `final` state (S,): the fitted model then ends by
    itself. Repetitions run in the `engine`, by default in threads.
    """
    seeds = rng.integers(0, 2**63, size=repeats)
    simulator = LogSimulator(logs, fit.model, behaviour, final, fit.weight_model)
    common = (fit, planner, simulator, world or fit.model, tuple(references))
    with without_fit_warnings():
        rows = list(as_engine(engine).map(_difference, seeds.tolist(), *common))
    return np.array([own for own, _ in rows]), StandardErrors.of([x for _, x in rows])


def _difference(
    seed: int,
    fit: Fit,
    planner: Planner,
    logger: LogSimulator,
    world: LatentMDP,
    references: tuple[Rule, ...],
) -> tuple[list[float], list[Floats | None]]:
    """One d_b, those of the references, and the parameters of the refit."""
    rng = np.random.default_rng(seed)
    logs = logger.simulate(rng)
    em = _like(fit, 2.0 ** rng.choice([-1.0, 0.0, 1.0], size=3))  # a step of EM's grid
    again = em.fit(logs, start=fit, rng=rng)
    refitted = restricted(again.model, fit.model.allowed)
    # Episodes that end by themselves may all be shorter than the longest logged one.
    refitted = refitted.replace(horizon=world.horizon, discount=world.discount)
    policy = planner.plan(only_tried(refitted, logs)).policy
    own = value_in(refitted, policy, rng) - value_in(world, policy, rng)
    others = [rule_value(refitted, rule) - rule_value(world, rule) for rule in references]
    return [own, *others], _parameters(refitted, again.weight_model)


def _parameters(model: LatentMDP, weight_model: WeightModel | None) -> list[Floats | None]:
    """Those that `StandardErrors` has, in its order."""
    M, S, A, _ = model.dimensions
    return [
        model.weights,
        model.initial,
        model.planning_rewards(),
        model.transitions if M * S * A * S <= _DENSE else None,
        None if weight_model is None else weight_model.coefficients,
    ]


def _like(fit: Fit, steps: Floats) -> EM:
    """An EM with what a fit decided, its strengths multiplied by `steps` (3,)."""
    estimator = fit.estimator
    assert isinstance(estimator, EM)
    names = ("pseudo_counts", "reward_pseudo_counts", "behaviour_pseudo_counts")
    changed = {
        name: getattr(fit, name) * step
        for name, step in zip(names, steps)
        if np.isfinite(getattr(fit, name))
    }
    # not that of `initialize`: in simulated logs, episodes end where the fitted model ends them
    settings = {one.name: getattr(estimator, one.name) for one in fields(EM)}
    return EM(**{**settings, **changed, "threads": 1})


class LogSimulator:
    """Simulates logs like the given ones in a model.

    The `behaviour` is (S, A), or (M, S, A) of a logger that knew the context. As many individuals
    are simulated as there are, cut where those were, with their actions in a trial with arms; one
    that reached a `final` state (S,) ends where the model ends it. Covariates are kept, and weigh
    contexts by a `weight_model`.
    """

    def __init__(
        self,
        logs: Trajectories,
        model: LatentMDP,
        behaviour: Floats,
        final: Flags,
        weight_model: WeightModel | None = None,
    ) -> None:
        self.model = model
        counts = logs.multiplicities()[logs.beginnings()]
        horizon = require_horizon(model, "simulation of logs")
        ends = np.append(logs.beginnings()[1:], len(logs)) - 1
        last = logs.last_states[ends]
        ended = (last >= 0) & final[last]
        lengths = np.where(ended, horizon, np.diff(logs.individual_offsets()))
        self.lengths = np.repeat(np.minimum(lengths, horizon), counts)
        rows = behaviour if behaviour.ndim == 3 else behaviour[None]
        self.policies = [possible(one, model.allowed) for one in rows]
        self.arms: Integers | None = None
        if has_arms(logs):
            self.arms = np.repeat(logs.actions[logs.individual_offsets()[:-1]], counts)
            self.policies = [always(a, model.allowed) for a in range(model.n_actions)]
        self._amounts = None if logs.amounts is None else _CellAmounts.of(logs, model)
        self.weights, self.covariates = model.weights, None
        if weight_model is not None and logs.covariates is not None:
            self.covariates = logs.covariates[np.repeat(logs.beginnings(), counts)]
            design = weight_model.encoder.design(self.covariates)
            self.weights = weight_model.weights(design)

    def simulate(self, rng: np.random.Generator) -> Trajectories:
        """Other individuals; what they are paid is drawn from the logged amounts of their cells."""
        simulated = self._individuals(rng)
        return simulated if self._amounts is None else self._amounts.paid(simulated, rng)

    def _individuals(self, rng: np.random.Generator) -> Trajectories:
        model, number = self.model, self.lengths.size
        if len(self.policies) == 1 and self.covariates is None:
            simulated = simulate(model, self.policies[0], number, rng, threads=1).without_contexts()
            return cut_short(simulated, self.lengths)
        shares = np.cumsum(np.broadcast_to(self.weights, (number, model.n_contexts)), axis=1)
        chance = rng.uniform(size=(number, 1)) * shares[:, -1:]
        labels = np.minimum((chance > shares).sum(axis=1), model.n_contexts - 1)
        by = self.arms if self.arms is not None else labels % len(self.policies)
        kind = labels * len(self.policies) + by
        parts = []
        for one in np.unique(kind).tolist():
            m, k = divmod(one, len(self.policies))
            some = int((kind == one).sum())
            parts.append(simulate(model.context(m), self.policies[k], some, rng, threads=1))
        joined = Trajectories.concat([part.without_contexts() for part in parts])
        # The argsort of an argsort is the inverse permutation: each individual's episode among
        # those that are joined kind by kind.
        rank = np.argsort(np.argsort(kind, kind="stable"), kind="stable")
        simulated = cut_short(joined[rank], self.lengths)
        if self.covariates is None:
            return simulated
        return Trajectories.from_fields({**simulated.to_fields(), "covariates": self.covariates})


class _CellAmounts(NamedTuple):
    """The amounts that were paid in each (s, a, z), one cell after the other, from starts on."""

    model: LatentMDP
    amounts: Floats
    starts: Integers

    @classmethod
    def of(cls, logs: Trajectories, model: LatentMDP) -> _CellAmounts:
        """Those of logs, each as often as its episode occurred."""
        assert logs.amounts is not None
        cells = logs.cells(("state", "action", "reward"), model.dimensions[1:])
        known = np.repeat(~np.isnan(logs.amounts) & (cells >= 0), counts := logs.step_counts())
        amounts, cells = np.repeat(logs.amounts, counts)[known], np.repeat(cells, counts)[known]
        order, size = np.argsort(cells, kind="stable"), int(np.prod(model.dimensions[1:]))
        return cls(model, amounts[order], np.searchsorted(cells[order], np.arange(size + 1)))

    def paid(self, logs: Trajectories, rng: np.random.Generator) -> Trajectories:
        """Logs with amounts drawn from those of their cells; the reward where there are none."""
        cells = logs.cells(("state", "action", "reward"), self.model.dimensions[1:])
        number = np.diff(self.starts)[cells]
        place = self.starts[cells] + (rng.random(cells.size) * number).astype(np.int64)
        drawn = self.amounts[np.minimum(place, self.amounts.size - 1)]
        amounts = np.where(number > 0, drawn, self.model.reward_values[logs.rewards])
        return logs._with(amounts=amounts)


def corrected(model_value: float, differences: Floats, confidence: float) -> Interval:
    """The value in the fitted model less the optimism bias d, with a confidence interval.

    With n differences of standard deviation s, the interval reaches

        sqrt( t^2 s^2 (1 + 1/n) + d^2 ),    t = the (1 + confidence) / 2 quantile of Student's t

    to both sides. The first term is the prediction interval of one more difference: that of the
    real fit. The second is there because the refitted models lie closer to the fitted one than
    that does to the truth, so that d is too small, by up to about its own size.
    """
    n, bias = differences.size, float(differences.mean())
    spread = float(differences.std(ddof=1)) * np.sqrt(1.0 + 1.0 / n)
    chance = float(stats.t.ppf(0.5 + confidence / 2.0, n - 1)) * spread
    half = float(np.hypot(chance, bias))
    mean = model_value - bias
    return Interval(mean, mean - half, mean + half)


def value_in(model: LatentMDP, policy: Policy, rng: np.random.Generator) -> float:
    """V(policy; model): exact for a Markov policy, which leaves `rng` as it is."""
    return evaluate(model, policy, EPISODES, rng, threads=1).mean
