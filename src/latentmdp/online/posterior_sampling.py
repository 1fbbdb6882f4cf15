"""Posterior sampling for latent MDPs: plan in a model drawn from the posterior.

Every row of T, R and nu has a Dirichlet posterior given the counts: over the outcomes seen, and one
more that is drawn at random. Each episode: draw a model, plan in it and play; then count the
episode for its context, which is revealed or drawn from the posterior of the sampled model's own
filter.

`learn(method="sampling")` draws models too, but fits the whole history again at growing intervals,
so that no episode keeps a wrong label: `drawn_fit` is a draw given the expected counts of the fit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from latentmdp._util.arrays import Floats
from latentmdp.fit import Fit
from latentmdp.logs import Episode, Trajectories
from latentmdp.model import LatentMDP
from latentmdp.online.base import CountingLearning, Learner
from latentmdp.online.empirical_model import Counts
from latentmdp.online.lucrl import LUCRL, revealed_context
from latentmdp.online.run import Run
from latentmdp.outcomes import Outcomes, outcomes_from_entries, row_sums
from latentmdp.planning import QMDP, Planner
from latentmdp.simulation import PolicyAgent
from latentmdp.worlds import Space, World, play_episode


@dataclass(frozen=True, eq=False)
class PosteriorSampling(Learner):
    """Sample a model, plan in it, act; then sample the episode's context and count it there.

    Parameters
    ----------
    planner, contexts, start, prior_count
        As for `LUCRL`.
    prior
        Pseudo-counts of an outcome that was not seen.
    """

    planner: Planner = QMDP()  # noqa: RUF009
    contexts: str = "revealed"
    start: LatentMDP | Trajectories | Fit | None = None
    prior_count: float = 10.0
    prior: float = 0.3

    def __post_init__(self) -> None:
        self._as_lucrl()
        if not self.prior > 0.0:
            raise ValueError(f"prior must be positive, got {self.prior}")

    def _as_lucrl(self) -> LUCRL:
        """The learner whose arguments and start this one shares."""
        return LUCRL(self.planner, self.contexts, self.start, self.prior_count, bonus=None)

    def begin(self, world: World, episodes: int, key: int) -> CountingLearning[Episode]:
        """See `Learner`."""
        empirical = self._as_lucrl().empirical_model(world, episodes)
        return _Sampling(self, world, empirical, episodes, key)


class _Sampling(CountingLearning[Episode]):
    """One run of posterior sampling."""

    learner: PosteriorSampling
    _chance: np.random.Generator
    _agent: PolicyAgent

    def plan(self) -> None:
        """Plan in a model drawn from the posterior."""
        self._chance = np.random.default_rng((self.key, self.done))
        policy = self.learner.planner.plan(self._drawn_model()).policy
        self._agent = PolicyAgent(policy, self.space, self.key)

    def _drawn_model(self) -> LatentMDP:
        counts, weights = self.empirical.counts(), self.empirical.weights()
        tables = (counts.joint(), counts.initial)
        return _drawn_table(self._chance, *tables, weights, self.space, self.learner.prior)

    def play(self, most: int) -> Episode:
        """Play its policy."""
        return play_episode(self.world, self._agent, self.key, self.done)

    def absorb(self, batch: Episode) -> None:
        """Count the episode for its context, revealed or drawn."""
        M, context, belief = self.space.n_contexts, batch.context, self._agent.belief()
        if self.learner.contexts == "inferred":
            context = int(self._chance.choice(M, p=belief))
        self.count(batch, revealed_context(context, M), belief)

    def result(self, settings: dict[str, Any]) -> Run:
        """See `Learning`: a plan for the mean of the counts."""
        plan = self.learner.planner.plan(self.empirical.acting_model())
        value = plan.upper if plan.upper is not None else plan.lower
        return self.counted(plan.policy, value, settings)


def drawn_fit(
    chance: np.random.Generator, fit: Fit, logs: Trajectories, space: Space, prior: float
) -> LatentMDP:
    """A model drawn from the posterior given a fit: the contexts of episodes are as it believes.

    Row (m, s, a) is Dirichlet. Its parameters are the expected counts, the pseudo-counts of the
    fit times the shares of the pooled counts, and `prior` for one outcome drawn at random.
    """
    seen = Counts.of_logs(logs, fit.responsibilities, space, "transition")
    table, fitted = seen.payments, replace(space, n_contexts=fit.model.n_contexts)
    pooled = table.probs.sum(axis=1, keepdims=True)
    shares = pooled / row_sums(table, pooled)[table.rows()]
    counts = table.having(table.probs + fit.pseudo_counts * shares)
    return _drawn_table(chance, counts, seen.initial, fit.model.weights, fitted, prior)


def _drawn_table(
    chance: np.random.Generator,
    counts: Outcomes,
    first_counts: Floats,
    weights: Floats,
    space: Space,
    prior: float,
) -> LatentMDP:
    """One draw of all rows of all contexts: each outcome seen, and one more drawn at random.

    The outcomes seen have their counts as parameters and the further one has the prior's, as if
    outcomes came from a Dirichlet process around the uniform distribution over all (s', z).
    `first_counts` (M, S) are those of first states, whose rows are drawn after the others.
    """
    M, S, A, Z = space.dimensions
    rows = np.flatnonzero(space.allowed_actions())
    fresh = rows[:, None] * (S * Z) + chance.integers(S * Z, size=(rows.size, M))
    outcome, contexts = np.nonzero(counts.probs > 0.0)
    keys = np.concatenate([counts.keys(S, Z)[outcome], fresh.ravel()])
    contexts = np.concatenate([contexts, np.tile(np.arange(M), rows.size)])
    shapes = np.concatenate(
        [
            counts.probs_of(outcome)[np.arange(outcome.size), contexts[: outcome.size]],
            np.full(fresh.size, prior),
        ]
    )
    allowed = np.isin(keys // (S * Z), rows)
    keys, contexts = keys[allowed], contexts[allowed]
    # A gamma of a small shape may underflow to zero; a row of zeros would have no shares.
    gammas = np.maximum(chance.standard_gamma(shapes[allowed]), 1e-300)
    of_row = keys // (S * Z) * M + contexts
    shares = gammas / np.bincount(of_row, gammas, S * A * M)[of_row]
    row, rest = np.divmod(keys, S * Z)
    table = outcomes_from_entries(row, rest // Z, rest % Z, contexts, shares, (M, S, A, Z))
    first = np.maximum(chance.standard_gamma(first_counts + prior), 1e-300)
    initial = first / first.sum(axis=1, keepdims=True)
    return space.table_model(table, initial=initial, weights=weights)
