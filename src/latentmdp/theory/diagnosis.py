"""Diagnosis of a model: which assumptions of the theory it meets, with numbers and verdicts.

    d = lm.diagnose(model)
    print(d.table())

Each assumption is measured by the function that defines it (`theory.divergence`, `theory.rank`,
`theory.communication`), and the theorems' sizes follow from these numbers (`theory.sample_size`).
With logs in place of a model see `theory.log_diagnosis`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, overload

import numpy as np

from latentmdp._util import arrays
from latentmdp._util.arrays import Flags, Floats
from latentmdp._util.random import RNGLike, as_generator
from latentmdp.logs import Logs
from latentmdp.model import LatentMDP, require_horizon
from latentmdp.policies import UniformPolicy
from latentmdp.theory import sample_size
from latentmdp.theory.communication import connectivity, diameter, reach_probs
from latentmdp.theory.divergence import (
    Closest,
    Revelation,
    WellSeparated,
    closest_contexts,
    kl_rate,
    revelation,
    separation,
    well_separated,
)
from latentmdp.theory.log_diagnosis import LogDiagnosis, Row, Verdicts, diagnose_logs
from latentmdp.theory.rank import AnyPolicy, end_state_probs, joint_sigma, sigma_h, sigma_tau
from latentmdp.theory.sample_size import Requirement
from latentmdp.theory.visitation import MAX_ENTRIES, table_entries

ROUNDING = 1e-12
"""Singular values and distances up to this are taken for zero."""

Finding = tuple[str, str]
"""A number, and what follows from it."""


@dataclass(frozen=True, eq=False)
class Diagnosis(Verdicts):
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
    connected: Flags
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
        eta = self.failure_probability
        return sample_size.inference_horizon(
            self.delta, self.n_states, self.steps, failure_probability=eta
        )

    @property
    def decoding(self) -> sample_size.DecodingHorizons | None:
        """The horizons of Chen et al. 2024; None without separation, or with nothing hidden."""
        if self.n_contexts == 1 or self.delta <= ROUNDING:
            return None
        delta, eps = min(self.delta, 2.0), self.failure_probability
        return sample_size.decoding_horizons(delta, self.n_contexts, self.n_states, accuracy=eps)

    @property
    def smoothing(self) -> float:
        """The largest alpha of Theorem 3.4; 0 without separation."""
        return self._if_separated(sample_size.largest_smoothing)

    @property
    def initialization_error(self) -> float:
        """The largest eps_init of Theorem 3.4; 0 without separation."""
        return self._if_separated(sample_size.initialization_error)

    @property
    def _sizes(self) -> tuple[int, int, int]:
        return self.n_contexts, self.n_states, self.n_actions

    @property
    def psr_episodes(self) -> float:
        """n0 of Theorem 3.5 with its constants set to 1; NaN if the sigmas are not known."""
        if np.isnan(self.sigma_tau).all():
            return math.nan
        accuracy = self.initialization_error
        if accuracy == 0.0:
            return math.inf
        return sample_size.psr_episodes_for_clustering(
            *self._sizes,
            self.horizon,
            sigma_tau=_smallest(self.sigma_tau),
            sigma_h=_smallest(self.sigma_joint),
            end_state_prob=_smallest(self.end_state_probs),
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
        least = float(self.alpha_3.min())
        return sample_size.clustering_episodes(*self._sizes, alpha_2=self.alpha_2, alpha_3=least)

    def _if_separated(self, formula: Callable[[float, int], float]) -> float:
        if self.delta <= 0.0:
            return 0.0
        return formula(min(self.delta, 2.0), self.n_states)

    def rows(self) -> list[Row]:
        """(assumption, number, verdict) in the order of the paper."""
        admitted = f"{self.smoothing:.3g}, {self.initialization_error:.3g}"
        largest = "largest smoothing and start error that the theorem admits"
        short, long = self.psr_episodes, self.clustering_episodes
        return [
            ("Assumption 1: delta", *_separation(self)),
            ("Theorem 3.4: horizon", *_horizon(self)),
            ("Theorem 3.4: alpha, eps_init", admitted, largest),
            ("Chen et al. 2024: to learn", *_learnable(self)),
            ("Chen et al. 2024: to plan", *_planned(self)),
            ("steps to a 0.99 posterior", *_revelation(self)),
            ("Condition 3: well separated", *_condition_3(self)),
            ("Condition 1: sigma_tau", *_rank(self.sigma_tau, f"tests of length {self.length}")),
            ("Condition 2: sigma_h", *_rank(self.sigma_h, f"histories of length {self.length}")),
            ("Assumption 3: alpha_2", *_reach(self)),
            ("Assumption 4: alpha_3", *_connected(self)),
            ("Remark 1: diameter", *_diameter(self)),
            ("Theorem 3.5: n0 short episodes", *_sizes(short, self.needed_psr)),
            ("Theorem 3.5: n1 long episodes", *_sizes(long, self.needed_clustering)),
        ]

    def __repr__(self) -> str:
        return (
            f"Diagnosis(contexts={self.n_contexts}, states={self.n_states}, "
            f"actions={self.n_actions}, horizon={self.horizon}, delta={self.delta:.3g}, "
            f"sigma_tau={self.sigma_tau.min():.3g}, sigma_h={self.sigma_h.min():.3g}, "
            f"alpha_2={self.alpha_2:.3g}, alpha_3={self.alpha_3.min():.3g}, "
            f"diameter={self.diameter.max():.3g})"
        )


@overload
def diagnose(model_or_logs: LatentMDP, *others: Any, **settings: Any) -> Diagnosis: ...
@overload
def diagnose(model_or_logs: Logs, *others: Any, **settings: Any) -> LogDiagnosis: ...
def diagnose(
    model_or_logs: LatentMDP | Logs,
    policy: AnyPolicy | None = None,
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
        A `LatentMDP`; or logs, for what can be said without a model. Of very long logs on disk,
        visits are counted in all of them and the rest is measured on episodes spread over them.
    policy
        The exploration policy; uniform by default. For logs: None if anybody may have made them;
        or the one stationary Markov policy that is known to have made them all, which lets more
        contexts be seen.
    length
        l, transitions in a test and in a history. In logs that anybody may have made, a test is
        one step.
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
    if isinstance(model_or_logs, Logs):
        return diagnose_logs(model_or_logs, policy, length, rng)
    if not isinstance(model_or_logs, LatentMDP):
        raise TypeError(
            f"diagnose needs a LatentMDP or Trajectories, got {type(model_or_logs).__name__}"
        )
    model, policy = model_or_logs, policy or UniformPolicy()
    generator = as_generator(rng)
    M, S, many = model.n_contexts, model.n_states, model.n_contexts > 1
    horizon = require_horizon(model, "diagnose")
    reach, rate = _followed(model, policy)
    reach = np.where(model.terminal, np.inf, reach)
    context, state = arrays.first_index(reach == reach.min())
    alpha_3 = connectivity(model)
    steps_to_reveal, separated, short, long = None, None, None, None
    if many:
        steps_to_reveal = revelation(model, policy, episodes=episodes, rng=generator)
        separated = well_separated(model, policy, episodes=episodes, rng=generator)
    if requirements:
        short = sample_size.needed_psr_episodes(model, policy, length, rng=generator)
        long = sample_size.needed_clustering_episodes(model, policy, rng=generator)
    return Diagnosis(
        delta=separation(model),
        closest=closest_contexts(model) if many else None,
        **_ranks(model, policy, length),
        alpha_2=float(reach.min()),
        hardest=None if np.isnan(reach).any() else (context, state),
        alpha_3=alpha_3,
        connected=alpha_3 > 0.0,
        diameter=_diameters(model),
        kl_rate=rate,
        revelation=steps_to_reveal,
        well_separated=separated,
        needed_psr=short,
        needed_clustering=long,
        n_contexts=M,
        n_states=S,
        n_actions=model.n_actions,
        horizon=horizon,
        length=length,
        steps=10_000.0 * horizon if total_steps is None else float(total_steps),
        failure_probability=failure_probability,
    )


def _followed(model: LatentMDP, policy: AnyPolicy) -> tuple[Floats, Floats]:
    """Reach probabilities and KL rates; NaN where the policy cannot be followed exactly."""
    from latentmdp.planning import TooManyHistoriesError

    M, S = model.n_contexts, model.n_states
    try:
        return reach_probs(model, policy), kl_rate(model, policy)
    except TooManyHistoriesError:
        return np.full((M, S), np.nan), np.full((M, M), np.nan)


def _diameters(model: LatentMDP, most_work: float = 2e10) -> Floats:
    """The diameters, or NaN where they take more than `most_work`, M S^4: some ten seconds."""
    M, S = model.n_contexts, model.n_states
    return diameter(model) if most_work >= M * S**4 else np.full(M, np.nan)


def _ranks(model: LatentMDP, policy: AnyPolicy, length: int) -> dict[str, Floats]:
    """The fields about tests and histories; NaN if they are too many."""
    of_histories = {"sigma_h": sigma_h, "sigma_joint": joint_sigma}
    of_histories["end_state_probs"] = end_state_probs
    if table_entries(model, length) > MAX_ENTRIES:
        return {name: np.full(model.n_states, np.nan) for name in ("sigma_tau", *of_histories)}
    found = {name: measure(model, policy, length) for name, measure in of_histories.items()}
    return {"sigma_tau": sigma_tau(model, length), **found}


def _smallest(values: Floats) -> float:
    """The smallest over states; 0 where some state has none or it is zero up to rounding."""
    least = float(np.nan_to_num(values, nan=0.0).min())
    return least if least > ROUNDING else 0.0


def _separation(d: Diagnosis) -> Finding:
    if d.closest is None:
        return "-", "a single context: nothing is hidden"
    (m, n), s, a = d.closest.contexts, d.closest.state, d.closest.action
    where = f"contexts {m} and {n} in state {s}, action {a}"
    if d.delta <= ROUNDING:
        return "0", f"fails: {where} are the same"
    return f"{d.delta:.4g}", f"holds; closest are {where}"


def _horizon(d: Diagnosis) -> Finding:
    needed = d.needed_horizon
    if math.isinf(needed):
        return "inf", "does not apply without separation"
    verdict = "enough" if d.horizon >= needed else "too short for the theorem"
    needs = f"Theorem 3.4 needs H >= {needed:.3g} (C = 1); you have {d.horizon}: {verdict}"
    return f"{needed:.3g}", needs


def _learnable(d: Diagnosis) -> Finding:
    if d.decoding is None:
        return "-", "does not apply: nothing is hidden, or contexts are not separated"
    low, high, _ = d.decoding
    verdict = "long enough" if d.horizon >= high else "too short" if d.horizon < low else "between"
    return f"{low:.3g} / {high:.3g}", (
        f"not learnable far below the first H, learnable from the second (C = 0); you have "
        f"{d.horizon}: {verdict}"
    )


def _planned(d: Diagnosis) -> Finding:
    if d.decoding is None:
        return "-", "does not apply: nothing is hidden, or contexts are not separated"
    W, eps = d.decoding.planned, d.failure_probability
    fits = "fits" if d.horizon >= W else "does not fit"
    return f"{W:.3g}", f"steps after which the context is decoded to plan within {eps:g}: {fits}"


def _revelation(d: Diagnosis) -> Finding:
    steps = d.revelation
    if steps is None:
        return "-", "a single context: nothing to reveal"
    half, most = (
        f"{n:.0f}" if math.isfinite(n) else f"> {steps.longest}" for n in steps.quantiles[:2]
    )
    slowest = d.kl_rate[~np.eye(d.n_contexts, dtype=bool)].min()
    pace = f"slowest pair {slowest:.3g} nats a step"
    if math.isinf(slowest):
        pace = "every pair has observations that rule one of the two out"
    within = f"within H = {d.horizon}: {steps.share:.1%} ± {steps.stderr:.1%} of episodes"
    return f"{half} / {most}", f"median / 90%; {within}; {pace}"


def _condition_3(d: Diagnosis) -> Finding:
    check = d.well_separated
    if check is None:
        return "-", "a single context"
    worst = int(np.argmax(check.probabilities))
    p, error = check.probabilities.flat[worst], check.stderr.flat[worst]
    verdict = {
        True: "holds under this policy",
        False: "fails under this policy",
        None: f"undecided: too few episodes to tell {check.limit:.2g} from 0",
    }[check.holds]
    return f"{p:.3g} ± {error:.1g}", f"{verdict} (must be below {check.limit:.2g}, eps_p = 0.1)"


def _rank(sigma: Floats, what: str) -> Finding:
    if np.isnan(sigma).all():
        return "-", f"not computed: {what} are too many, or there are none"
    lost = int(np.isnan(sigma).sum())
    smallest, s = float(np.nanmin(sigma)), int(np.nanargmin(sigma))
    note = f"; {lost} states never reached at that time" if lost else ""
    if smallest <= ROUNDING:
        return "0", f"fails in state {s}: {what} do not span the contexts{note}"
    return f"{smallest:.3g}", f"holds with {what}; smallest in state {s}{note}"


def _reach(d: Diagnosis) -> Finding:
    if d.hardest is None:
        return "-", "not computed: the policy has too many histories"
    m, s = d.hardest
    where = f"state {s} in context {m} at time H - 1"
    if d.alpha_2 <= 0.0:
        return "0", f"fails: {where} is never reached"
    return f"{d.alpha_2:.3g}", f"holds; rarest is {where}"


def _connected(d: Diagnosis) -> Finding:
    m = int(np.argmin(d.alpha_3))
    if not d.connected.all():
        return "0", f"fails: the states of context {m} are not connected"
    return f"{d.alpha_3[m]:.3g}", f"holds; weakest is context {m}"


def _diameter(d: Diagnosis) -> Finding:
    worst = float(d.diameter.max())
    if math.isnan(worst):
        return "-", "not computed: too many states"
    if math.isinf(worst):
        return "inf", "some state cannot be reached for sure from another"
    return f"{worst:.3g}", "steps between the two states farthest apart"


def _sizes(formula: float, needed: Requirement | None) -> Finding:
    if math.isnan(formula):
        verdict = "not computed, since a number above is not"
    elif math.isinf(formula):
        verdict = "no number suffices: an assumption above fails"
    else:
        verdict = "with all constants 1"
    if needed is not None:
        verdict += f"; truly needed here: {needed.value:.3g} ± {needed.stderr:.1g}"
    return f"{formula:.3g}", verdict
