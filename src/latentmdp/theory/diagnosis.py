"""Which assumptions of the theory a model meets, with numbers and a plain verdict for each.

    d = lm.diagnose(model)
    print(d.table())

With logs in place of a model see `theory.log_diagnosis`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict, Unpack, overload

import numpy as np
from numpy.typing import NDArray

from latentmdp._util import arrays
from latentmdp._util.arrays import Floats
from latentmdp._util.random import RNGLike, as_generator
from latentmdp.model import LatentMDP
from latentmdp.policies import HistoryPolicy, Policy, UniformPolicy
from latentmdp.theory import measures, sample_size
from latentmdp.theory.information import (
    Revelation,
    WellSeparated,
    revelation,
    well_separated,
)
from latentmdp.theory.reachability import connectivity
from latentmdp.theory.requirements import (
    Requirement,
    needed_clustering_episodes,
    needed_psr_episodes,
)
from latentmdp.theory.separation import Closest, closest_contexts, separation
from latentmdp.trajectories import Trajectories

if TYPE_CHECKING:
    from latentmdp.theory.log_diagnosis import LogDiagnosis

__all__ = ["Diagnosis", "diagnose"]


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """What the theory's assumptions amount to on a model and under a policy.

    Attributes
    ----------
    delta, closest
        Assumption 1, and where it is smallest (None with a single context).
    sigma_tau, sigma_h, sigma_joint : (S,)
        Conditions 1 and 2 for tests and histories of `length`; the last has the weights in H_s
        (see `theory.rank`). NaN where no history ends.
    end_state_probs : (S,)
        P^pi(end state = s) of those histories.
    alpha_2, hardest
        Assumption 3 under the policy, and the (context, state) where it is smallest.
    alpha_3, connected : (M,)
        Assumption 4.
    diameter : (M,)
        Remark 1.
    kl_rate : (M, M)
        Nats per step by which the true context (row) outgrows another (column).
    revelation, well_separated
        Steps to a 0.99 posterior, and Condition 3, by Monte Carlo; None with a single context.
    needed_psr, needed_clustering
        Monte Carlo of the short and long episodes truly needed, beside n0 and n1; None if not
        asked for.
    n_contexts, n_states, n_actions, horizon, length, steps, failure_probability
        What the sizes of the theorems are computed for: N = `steps` actions to be taken in all.
    """

    delta: float
    closest: Closest | None
    sigma_tau: Floats
    sigma_h: Floats
    sigma_joint: Floats
    end_state_probs: Floats
    alpha_2: float
    hardest: tuple[int, int] | None
    alpha_3: Floats
    connected: NDArray[np.bool_]
    diameter: Floats
    kl_rate: Floats
    revelation: Revelation | None
    well_separated: WellSeparated | None
    needed_psr: Requirement | None
    needed_clustering: Requirement | None
    n_contexts: int
    n_states: int
    n_actions: int
    horizon: int
    length: int
    steps: float
    failure_probability: float

    @property
    def needed_horizon(self) -> float:
        """H of Theorem 3.4 with C = 1; infinite without separation."""
        if self.delta <= 0.0:
            return math.inf
        if math.isinf(self.delta):
            return 1.0
        return sample_size.inference_horizon(
            self.delta,
            self.n_states,
            self.steps,
            failure_probability=self.failure_probability,
        )

    @property
    def smoothing(self) -> float:
        """The largest alpha of Theorem 3.4; 0 without separation."""
        return self._if_separated(sample_size.largest_smoothing)

    @property
    def initialization_error(self) -> float:
        """The largest eps_init of Theorem 3.4; 0 without separation."""
        return self._if_separated(sample_size.initialization_error)

    @property
    def psr_episodes(self) -> float:
        """n0 of Theorem 3.5 with its constants set to 1; NaN if the sigmas are not known."""
        accuracy = self._if_separated(sample_size.initialization_error)
        if np.isnan(self.sigma_tau).all():
            return math.nan
        if accuracy == 0.0:
            return math.inf
        return sample_size.psr_episodes_for_clustering(
            self.n_contexts,
            self.n_states,
            self.n_actions,
            self.horizon,
            sigma_tau=measures.smallest(self.sigma_tau),
            sigma_h=measures.smallest(self.sigma_joint),
            end_state_prob=measures.smallest(self.end_state_probs),
            alpha_2=self.alpha_2,
            alpha_3=float(self.alpha_3.min()),
            accuracy=sample_size.prediction_accuracy(min(self.delta, 2.0), accuracy),
            steps=self.steps,
            length=self.length,
            failure_probability=self.failure_probability,
        )

    @property
    def clustering_episodes(self) -> float:
        """n1 of Theorem 3.5 with C_1 = 1."""
        return sample_size.clustering_episodes(
            self.n_contexts,
            self.n_states,
            self.n_actions,
            alpha_2=self.alpha_2,
            alpha_3=float(self.alpha_3.min()),
        )

    def _if_separated(self, formula: object) -> float:
        if self.delta <= 0.0:
            return 0.0
        return float(formula(min(self.delta, 2.0), self.n_states))  # type: ignore[operator]

    def rows(self) -> list[tuple[str, str, str]]:
        """(assumption, number, verdict) in the order of the paper."""
        from latentmdp.theory.diagnosis_text import rows

        return rows(self)

    def table(self) -> str:
        """The rows as text, to be printed."""
        from latentmdp.theory.diagnosis_text import as_text

        return as_text(self.rows())

    def __str__(self) -> str:
        return self.table()


class Settings(TypedDict, total=False):
    """The keyword arguments of `diagnose`, for its overloads."""

    episodes: int
    total_steps: float | None
    failure_probability: float
    requirements: bool


@overload
def diagnose(
    model_or_logs: LatentMDP,
    policy: Policy | HistoryPolicy | None = None,
    length: int = 1,
    rng: RNGLike = 0,
    **settings: Unpack[Settings],
) -> Diagnosis: ...
@overload
def diagnose(
    model_or_logs: Trajectories,
    policy: Policy | HistoryPolicy | None = None,
    length: int = 1,
    rng: RNGLike = 0,
    **settings: Unpack[Settings],
) -> LogDiagnosis: ...
def diagnose(
    model_or_logs: LatentMDP | Trajectories,
    policy: Policy | HistoryPolicy | None = None,
    length: int = 1,
    rng: RNGLike = 0,
    *,
    episodes: int = 4000,
    total_steps: float | None = None,
    failure_probability: float = 0.05,
    requirements: bool = False,
) -> Diagnosis | LogDiagnosis:
    """Measure the assumptions of the theory on a model, or what logs can tell of them.

    Parameters
    ----------
    model_or_logs
        A `LatentMDP`; or `Trajectories`, for what can be said without a model.
    policy
        The exploration policy; uniform by default. For logs: the policy that made them, Markov;
        None estimates it as Markov from the logs.
    length
        l, transitions in a test and in a history.
    rng, episodes
        For the Monte Carlo parts.
    total_steps
        N, the actions to be taken in all, for the logarithms of the theorems; 10,000 episodes by
        default.
    failure_probability
        eta.
    requirements
        Also measure the numbers of episodes truly needed (some seconds).

    Notes
    -----
    alpha_2 and the KL rate are exact for Markov policies. For others all histories are enumerated;
    where those are too many, they are NaN. So are singular values where tests or histories are too
    many, and diameters of very large models (`theory.diameter` computes them all the same).
    """
    length = arrays.positive_integer("length", length)
    if isinstance(model_or_logs, Trajectories):
        from latentmdp.theory.log_diagnosis import diagnose_logs

        return diagnose_logs(model_or_logs, policy, length, rng)
    if not isinstance(model_or_logs, LatentMDP):
        raise TypeError(
            f"diagnose needs a LatentMDP or Trajectories, got {type(model_or_logs).__name__}"
        )
    model, policy = model_or_logs, policy or UniformPolicy()
    generator = as_generator(rng)
    many = model.n_contexts > 1
    reach, rate = measures.follow(model, policy)
    tau, history, joint, ends = measures.ranks(model, policy, length)
    alpha_3 = connectivity(model)
    return Diagnosis(
        delta=separation(model),
        closest=closest_contexts(model) if many else None,
        sigma_tau=tau,
        sigma_h=history,
        sigma_joint=joint,
        end_state_probs=ends,
        alpha_2=float(reach.min()),
        hardest=measures.hardest(reach),
        alpha_3=alpha_3,
        connected=alpha_3 > 0.0,
        diameter=measures.diameters(model),
        kl_rate=rate,
        revelation=revelation(model, policy, episodes=episodes, rng=generator) if many else None,
        well_separated=(
            well_separated(model, policy, episodes=episodes, rng=generator) if many else None
        ),
        needed_psr=needed_psr_episodes(model, policy, length, rng=generator)
        if requirements
        else None,
        needed_clustering=(
            needed_clustering_episodes(model, policy, rng=generator) if requirements else None
        ),
        n_contexts=model.n_contexts,
        n_states=model.n_states,
        n_actions=model.n_actions,
        horizon=model.horizon,
        length=length,
        steps=10_000.0 * model.horizon if total_steps is None else float(total_steps),
        failure_probability=failure_probability,
    )
