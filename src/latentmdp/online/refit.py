"""Learning to act from nothing: maximum likelihood on a growing history, and optimism.

    explore a little with uniformly random actions
    repeat, at growing intervals:
        fit a latent MDP to all episodes so far by maximum likelihood
        from the counts of that fit, play L-UCRL with inferred contexts
    fit once more, plan with a certificate, and play that plan in the last fifth of the episodes;
        while its first episodes contradict what it promises, fit them too and plan again

Online EM [kwon2021, Alg. 3] counts each episode once, under the labels believed at the time, and
never takes a wrong label back; it needs a good start. Refitting on the whole history relabels
every episode, so early mistakes do not stay; and between two fits L-UCRL goes on exploring, each
episode by what the one before it showed. Since every fit is smoothed towards the pooled
model as strongly as predicts held-out episodes best, what one context shows of the world serves
the others, which counts kept apart by true labels cannot do: a row of a fit counts as

    N_m(s, a) + min(k, sum_m N_m(s, a))

visits, N_m(s, a) the expected ones in context m and k the pseudo-counts of the pooled row.

The last fifth of the episodes is the final policy's own: nothing is tried in it, so it tells what
the policy earns in the world, whatever the model promises. A model may be wrong where no episode
has been, and then its plan may go there. What the world pays shows it: a plan is given up after a
few episodes where they contradict what it promises, or earn clearly less than an earlier phase did,
random actions among them; the next one has learned from them, and only the last one's count. Where
the world is not a latent MDP no plan may be as good as what was seen before: then the policy of the
best earlier phase, planned from its fit, has the episodes that are left.

A row that was seldom tried, and early, when labels were guesses, may look bad in every context; and
where something else earns a little, a small bonus never asks again. So in every fourth phase the
bonus is five times as large: what it costs is earned back by the final policy, which has none.

What EM does not estimate by itself is chosen anew whenever the data have doubled: how many contexts
there are (if that is to be found), whether rewards depend on the next state (if that is to be
found), whether the first state tells of the context, and how many pseudo-counts to use.

A run is in one of these states, each a class below with what it needs. `plan` leaves `_FitDue`,
`play` plays as the state says, and `absorb` goes on to the state that follows.

    state              plays                               then
    _Exploring         random episodes                     _FitDue
    _FitDue            nothing: `plan` fits all episodes   a round, or in the last fifth _OnTrial;
                       that fits may see                   _Final where no trial is left, by the
                                                           best earlier phase's plan if all failed
    _Round             a phase of L-UCRL, or by the plan   _FitDue
                       of a sampled model
    _OnTrial           a few episodes by the final plan    _FitDue if they contradict the plan,
                                                           else _Final
    _Final             all that is left by that plan       the end

A checkpoint is written in `_FitDue` or `_Final`. It holds the episodes and what the fit that is due
goes on from; of `_Final` it holds what the last fit began from, and a resumed run makes that fit
and its plan once more, so plans need not be stored.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from scipy.special import digamma

from latentmdp._util import arrays
from latentmdp._util.arrays import Arrays, Floats
from latentmdp._util.checkpoint import packed, unpacked
from latentmdp._util.random import RNGLike, philox_key
from latentmdp._util.validation import require_choice
from latentmdp.estimation import (
    EM,
    FEW_CONTEXTS,
    MAX_CONTEXTS,
    ContextSearch,
    may_show_contexts,
    preferred_reward_model,
    require_reward_model,
    restricted,
)
from latentmdp.fit import Fit, without_fit_warnings
from latentmdp.logs import Trajectories, cell_counts, occurring_cells
from latentmdp.metrics import mean_return
from latentmdp.model import LatentMDP, RewardModel
from latentmdp.online.base import Learner, Learning, model_error
from latentmdp.online.bonus import Bonus, VarianceBonus
from latentmdp.online.empirical_model import Counts
from latentmdp.online.lucrl import LUCRL, going_on
from latentmdp.online.posterior_sampling import PosteriorSampling, drawn_fit
from latentmdp.online.psr_start import PSRStart
from latentmdp.online.run import Curve, Phase, Run, phase_rows, phases_of
from latentmdp.online.warnings import LearnWarning, contradicted, learn_warnings, told_apart
from latentmdp.planning import (
    ActingPlanner,
    CertifiedPlanner,
    Plan,
    Planner,
    acting_smoothing,
    planner_for,
)
from latentmdp.policies import Policy, UniformPolicy
from latentmdp.simulation import gathered, play
from latentmdp.worlds import GymnasiumWorld, Space, World, adapt

_FEWEST = 10
"""Episodes of a phase, and of a trial, at least: a fit costs more than they do."""


_BOLD, _BOLD_EVERY = 5.0, 4
"""How much larger the bonus is in a bold phase, and which phases are: every fourth, about a quarter
of all episodes, early and late. Chosen on variants 103 to 106 of the tiger, three of which kept out
of a door that had looked bad in the first dozen visits."""


def learn(
    world: Any,
    n_contexts: int | Literal["auto"] = "auto",
    episodes: int = 10_000,
    rng: RNGLike = None,
    *,
    method: Literal["likelihood", "sampling", "psr"] = "likelihood",
    explore: int = 20,
    growth: float = 1.3,
    restarts: int = 3,
    bonus: Bonus | VarianceBonus | None = VarianceBonus(),  # noqa: B008
    max_contexts: int = MAX_CONTEXTS,
    reward_model: Literal["state-action", "transition", "auto"] = "auto",
    shared_initial: bool | Literal["auto"] = "auto",
    reward_levels: int | Literal["auto"] | None = None,
    planner: Planner | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: bool = False,
    time_limit: float | None = None,
) -> Run:
    """Learn to act in a world whose contexts are never shown.

    Parameters
    ----------
    world
        A `LatentMDP`, a Gymnasium environment with finite spaces, or `lm.envs.adapt(env, ...)`.
    n_contexts
        M; "auto" chooses it by held-out likelihood, again each time the data have doubled.
    episodes
        K, exploration included.
    method
        "likelihood" refits on all episodes at growing intervals and is optimistic about what few
        of them show. "sampling" refits likewise and plays, in place of the optimistic policy, that
        of a model drawn from the posterior given the fit. "psr" is the path of [kwon2021,
        Thm. 3.5]: a PSR from short random episodes, recovery by clustering, then L-UCRL with
        inferred contexts; it needs `n_contexts`, and of what follows it takes `reward_model`
        (for L-UCRL), `planner` and `checkpoint`; `online.PSRStart` has settings of its own.
    explore
        Episodes of uniformly random actions at the beginning.
    growth
        The data grow by this factor between two fits.
    restarts
        Fresh starts of a fit whenever the data have doubled, beside the one from the fit before.
    bonus
        Optimism about rows that few observations support, as of `LUCRL`.
    max_contexts
        The largest number that "auto" tries; the default is raised by itself while still more
        contexts predict better.
    reward_model
        Whether a reward depends on (s, a), or on (s, a, s') as in most Gymnasium tables; "auto"
        decides by BIC, again each time the data have doubled.
    shared_initial
        Whether all contexts begin in the same states, so that the first state says nothing of the
        context; "auto" decides by held-out likelihood, again each time the data have doubled.
    reward_levels
        Of a Gymnasium environment whose rewards are measured: how many levels they become as
        evidence, as for `envs.adapt`.
    planner
        Makes the final plan; HSVI to a gap of 3 % within 10 seconds by default. While learning,
        plans are Q-MDP's, or PBVI's where Q-MDP falls short of its own bound.
    checkpoint
        A file to go on from after an interruption; the result is the same to the bit.
    time_limit
        Seconds after which the run so far is returned, as Ctrl-C does where there is no checkpoint;
        see `Learner.run`. From six tenths of it on only the final policy plays.

    Returns
    -------
    Run
        With `plan`, `fit`, `phases` and `logs`.
    """
    if reward_levels is not None:
        world = adapt(world, reward_levels=reward_levels)
    require_choice("method", method, ("likelihood", "sampling", "psr"))
    learner: Learner
    if method != "psr":
        learner = Refit(
            n_contexts,
            explore=explore,
            growth=growth,
            restarts=restarts,
            bonus=bonus,
            max_contexts=max_contexts,
            reward_model=reward_model,
            shared_initial=shared_initial,
            planner=planner,
            sampling=method == "sampling",
        )
    else:
        require_reward_model(reward_model)
        if n_contexts == "auto":
            raise ValueError('method="psr" needs a known n_contexts')
        counted: RewardModel = "state-action" if reward_model == "auto" else reward_model
        learner = PSRStart(n_contexts, reward_model=counted, planner=planner)
    return learner.run(world, episodes, rng, checkpoint, progress, time_limit)


@dataclass(frozen=True, eq=False)
class Refit(Learner):
    """Maximum likelihood on a growing history; parameters as for `learn`.

    With `sampling`, the policy of a phase is that of a model drawn from the posterior.
    """

    n_contexts: int | Literal["auto"] = "auto"
    explore: int = 20
    growth: float = 1.3
    restarts: int = 3
    bonus: Bonus | VarianceBonus | None = VarianceBonus()  # noqa: RUF009
    max_contexts: int = MAX_CONTEXTS
    reward_model: Literal["state-action", "transition", "auto"] = "auto"
    shared_initial: bool | Literal["auto"] = "auto"
    planner: Planner | None = None
    sampling: bool = False
    finds_rewards: ClassVar[bool] = True
    after_learning: ClassVar[tuple[str, ...]] = ("planner",)

    def __post_init__(self) -> None:
        if self.n_contexts != "auto":
            arrays.positive_integer("n_contexts", self.n_contexts)
        require_reward_model(self.reward_model)
        require_choice("shared_initial", self.shared_initial, (True, False, "auto"))
        if not 1.0 < self.growth < np.inf:
            raise ValueError(f"growth must be above 1 and finite, got {self.growth}")
        LUCRL(bonus=self.bonus)  # which says what a bonus may be
        for name in ("explore", "restarts", "max_contexts"):
            arrays.positive_integer(name, getattr(self, name))

    def begin(self, world: World, episodes: int, key: int) -> Learning[Trajectories]:
        """See `Learner`; what no fit could do is refused before any episode is played."""
        M, H = self.n_contexts, world.space.required_horizon()
        if M not in (1, "auto"):
            if H < 2:
                raise ValueError(f"episodes of one step cannot show n_contexts={M}")
            if episodes < int(M):
                raise ValueError(f"episodes={episodes} cannot show n_contexts={M}")
        return _Refitting(self, world, episodes, key)


class _ChosenStructure(NamedTuple):
    """What EM does not estimate by itself, and from how many episodes it was chosen."""

    episodes: int
    n_contexts: int
    reward_model: RewardModel
    shared_initial: bool
    pseudo_counts: float
    reward_pseudo_counts: float


class _LastFit(NamedTuple):
    """What a fit goes on from: the structure and the model of the one before, if there was one."""

    structure: _ChosenStructure | None = None
    model: LatentMDP | None = None


class _BestPhase(NamedTuple):
    """Of the phases before the final plan the one that surely earned most.

    `low` is the lower end of the interval of its mean return, `model` its fit; None where actions
    were random.
    """

    low: float
    model: LatentMDP | None


@dataclass(frozen=True)
class _Exploring:
    """Nothing is known, and actions are random."""


@dataclass(frozen=True)
class _FitDue:
    """The history has grown since `last_fit`.

    `final_logs` is empty but in a resumed run whose final plan has passed its trial: the fit finds
    that plan again.
    """

    last_fit: _LastFit
    final_logs: Trajectories


@dataclass(frozen=True)
class _Fitted:
    """A fit to all episodes so far, and its structure."""

    structure: _ChosenStructure
    fit: Fit

    @property
    def last_fit(self) -> _LastFit:
        """What the next fit goes on from."""
        return _LastFit(self.structure, self.fit.model)


@dataclass(frozen=True)
class _Round(_Fitted):
    """L-UCRL, or the policy of a model drawn from the posterior, acts until the next fit.

    `played` gives so many episodes of it.
    """

    played: Callable[[int], Trajectories]


@dataclass(frozen=True)
class _OnTrial(_Fitted):
    """The plan of the last fit is tried in the world, and given up if that contradicts it.

    `before_final_fit` is what a resumed run makes the same fit from.
    """

    plan: Plan
    before_final_fit: _LastFit


@dataclass(frozen=True)
class _Final(_OnTrial):
    """The plan acts to the end; `final_logs` are its episodes, which no fit has seen."""

    final_logs: Trajectories


class _Refitting(Learning[Trajectories]):
    """One run: all episodes that fits may see, and the state it is in (see the module)."""

    learner: Refit

    def __init__(self, learner: Refit, world: World, episodes: int, key: int) -> None:
        super().__init__(learner, world, world.space, episodes, key)
        self.no_logs = gathered([], self.space).without_contexts()
        self.logs = self.no_logs
        self.phases: tuple[Phase, ...] = ()
        self.best_phase: _BestPhase | None = None
        self.state: _Exploring | _FitDue | _Fitted = _Exploring()
        self._end_after(episodes)

    def _end_after(self, episodes: int) -> None:
        """Give the final policy the last fifth of so many episodes; a trial is 1/16 of those, or a
        few.
        """
        self.episodes = episodes
        self.first_final = max(self.done, episodes - max(1, episodes // 5))
        self.trial = max(_FEWEST, (episodes - self.first_final) // 16)

    def hurry(self) -> None:
        """See `Learning`: a quarter as many episodes as there were, by the final policy."""
        if self.done < self.first_final:
            self._end_after(min(self.episodes, self.done + max(1, self.done // 4)))

    def end_here(self) -> None:
        """See `Learning`: the last fit is made, and its plan is not tried."""
        super().end_here()
        self.first_final, self.trial = min(self.first_final, len(self.logs)), 0

    def plan(self) -> None:
        """Where a fit is due, make it, and with it what acts next."""
        due = self.state
        if not isinstance(due, _FitDue):
            return
        fitted = sum(phase.first_episode < len(self.logs) for phase in self.phases)
        rng = np.random.default_rng([self.key, fitted])
        structure, fit = _next_fit(self.learner, self.logs, due.last_fit, rng)
        model = self._sized(fit.model)
        if self.done >= self.first_final:
            planner = ActingPlanner(self.learner.planner or CertifiedPlanner())
            plan = self._earlier_plan() if self._all_failed() else planner.plan(model)
            final = (structure, fit, plan, due.last_fit)
            self.state = _OnTrial(*final) if self._may_try(due) else _Final(*final, due.final_logs)
        elif self.learner.sampling:
            # The last number keeps draws of models apart from those of the fits.
            rng = np.random.default_rng([self.key, len(self.phases), 1])
            sampled_model = drawn_fit(rng, fit, self.logs, self.space, PosteriorSampling.prior)
            policy = planner_for(model).plan(sampled_model).policy
            self.state = _Round(structure, fit, partial(self._play, policy))
        else:
            self.state = _Round(structure, fit, self._optimistic_round(fit, model))

    def _play(self, policy: Policy, number: int) -> Trajectories:
        """So many episodes more by a policy."""
        # The fits draw from the key itself, so the world's chance has a key of its own.
        return play(self.world, policy, number, philox_key(self.key), self.done)

    def _may_try(self, due: _FitDue) -> bool:
        """Whether the final plan to be made may still be given up for a better one.

        It is the last where it has passed a trial, and where another one would leave it less than
        half of the final episodes.
        """
        return not len(due.final_logs) and self._trial_left(self.done)

    def _trial_left(self, done: int) -> bool:
        """Whether there is time for a trial after so many episodes."""
        over = done - self.first_final + self.trial
        return 0 < 2 * over < self.episodes - self.first_final

    def _all_failed(self) -> bool:
        """Whether no trial is left, and the last plan tried was clearly worse than before."""
        tried = len(self.logs) > self.first_final and not self._trial_left(len(self.logs))
        return tried and self._is_worse(self.returns[: len(self.logs)])

    def _is_worse(self, returns: Floats) -> bool:
        """Whether the last `trial` of some returns are clearly below the best earlier phase."""
        best, last = self.best_phase, mean_return(returns[-self.trial :])
        return best is not None and last is not None and last.high < best.low

    def _earlier_plan(self) -> Plan:
        """What the best earlier phase acted by: the plan of its fit, or random actions."""
        assert self.best_phase is not None
        model = self.best_phase.model
        if model is None:
            return Plan(UniformPolicy(), message="random actions")
        sized = self._sized(model)
        return ActingPlanner(planner_for(sized)).plan(sized)

    def _bonus(self, fit: Fit) -> Bonus | VarianceBonus | None:
        """The learner's bonus, larger in a bold phase, and smaller in others without noise."""
        bonus = self.learner.bonus
        if bonus is not None and not len(self.phases) % _BOLD_EVERY:
            return bonus.scaled(_BOLD)
        if isinstance(bonus, VarianceBonus) and bonus.failure_probability is None:
            novelty = _novelty(self.logs, fit.responsibilities, bonus.remainder)
            bonus = replace(bonus, remainder=min(bonus.remainder, novelty))
        return bonus

    def _optimistic_round(self, fit: Fit, model: LatentMDP) -> Callable[[int], Trajectories]:
        """L-UCRL from the counts of a fit; `model` is the fitted one in the world's space."""
        phase_learner = LUCRL(
            planner_for(model),
            contexts="inferred",
            bonus=self._bonus(fit),
            smoothing=acting_smoothing(model.n_states, self.space.n_rewards),
            # A plan is due when a count has grown by a fifth: as good a curve as a plan for every
            # episode, at a fraction of the time.
            replan="lazy",
            retry=False,
            weights="learned",
            reward_model=model.reward_model,
        )
        space = replace(self.space, n_contexts=model.n_contexts)
        visits = cell_counts(self.logs, ("state", "action"), shares=fit.responsibilities)
        rows = visits + np.minimum(max(1.0, fit.pseudo_counts), visits.sum(axis=0))
        episodes = fit.responsibilities.sum(axis=0)
        counts = Counts.of_model(model, rows, episodes, space, model.reward_model)
        empirical = phase_learner.counting(space, counts, self.episodes)

        def played(number: int) -> Trajectories:
            random = int(number * _random_share(fit, self.done))
            stop, key = self.done + number - random, philox_key(self.key)
            rounds = going_on(phase_learner, self.world, empirical, stop, key)
            rounds.done = self.done
            phase = rounds.played_rounds(number - random)
            if not random:
                return phase
            rest = play(self.world, UniformPolicy(), random, key, stop)
            return Trajectories.concat([phase, rest])

        return played

    def play(self, most: int) -> Trajectories:
        """Play a phase: the longer, the more is known."""
        state = self.state
        if isinstance(state, _OnTrial):
            length = self.episodes - self.done if isinstance(state, _Final) else self.trial
            return self._play(state.plan.policy, length)
        if isinstance(state, _Exploring):
            number = self.learner.n_contexts
            length = max(self.learner.explore, 1 if number == "auto" else number)
            return self._play(UniformPolicy(), min(length, max(self.first_final, 1)))
        assert isinstance(state, _Round)
        length = max(_FEWEST, int(self.done * (self.learner.growth - 1.0)))
        return state.played(min(length, self.first_final - self.done))

    def absorb(self, batch: Trajectories) -> None:
        """Add the phase to the history, or to the final episodes; contexts go to the record."""
        now, state = self.record(batch), self.state
        fit = state.fit if isinstance(state, _Fitted) else None
        phase = Phase(
            first_episode=now.start,
            episodes=len(batch),
            n_contexts=0 if fit is None else fit.model.n_contexts,
            log_likelihood=float("nan") if fit is None else fit.log_likelihood,
            model_error=model_error(self.world, None if fit is None else fit.model),
            mean_return=float(self.returns[now].mean()),
        )
        self.phases = (*self.phases, phase)
        value = mean_return(self.returns[now])
        low = -np.inf if self.best_phase is None else self.best_phase.low
        if now.stop <= self.first_final and len(batch) >= _FEWEST and value and value.low > low:
            self.best_phase = _BestPhase(value.low, None if fit is None else fit.model)
        new = batch.without_contexts()
        if self.world.finding_rewards and batch.amounts is not None:
            self._find_rewards(batch.amounts)
            new = _recoded(new, self.space)
        if isinstance(state, _Final):
            self.state = replace(state, final_logs=Trajectories.concat([state.final_logs, new]))
        elif isinstance(state, _OnTrial) and not self._gives_up(state.plan, now):
            self.state = _Final(**vars(state), final_logs=new)
        else:
            self.logs = Trajectories.concat([self.logs, new])
            last_fit = state.last_fit if isinstance(state, _Fitted) else _LastFit()
            self.state = _FitDue(last_fit, self.no_logs)

    def _find_rewards(self, amounts: Floats) -> None:
        """Let the rewards of the random episodes be all that there are, or make levels of them."""
        assert isinstance(self.world, GymnasiumWorld)
        self.world.find_rewards(amounts)
        self.space = self.world.space
        self.logs = self.no_logs = gathered([], self.space).without_contexts()

    def _gives_up(self, plan: Plan, now: slice) -> bool:
        """Whether a trial contradicts what the plan promises, or what was earned before."""
        value = mean_return(self.returns[now])
        if value is None:
            return False
        return contradicted(plan, value) is not None or self._is_worse(self.returns[now])

    def _not_found(self, fit: Fit, visits: Floats, final_logs: Trajectories) -> Iterator[str]:
        """What exploration has not seen, in words."""
        learner, number = self.learner, fit.model.n_contexts
        if learner.n_contexts == "auto" and number == learner.max_contexts != MAX_CONTEXTS:
            yield f"there may be more contexts than max_contexts={number}, the most that were tried"
        if np.ptp(self.returns) == 0.0 and self.space.n_rewards > 1 and self.done >= _FEWEST:
            yield (
                f"all {self.done} episodes earned the same, {self.returns[0]:.4g}: whatever else "
                "the world pays was never reached"
            )
        steps = final_logs.steps()
        met = np.bincount(steps.state[steps.state >= 0], minlength=self.space.n_states) > 0
        untried = self.space.allowed_actions() & met[:, None] & (visits.sum(axis=0) == 0.0)
        if untried.any():
            s, a = np.argwhere(untried)[0]
            yield (
                f"{int(untried.sum())} actions were never tried in states where the final policy "
                f"goes, such as action {a} in state {s}: what they would earn is not known"
            )

    def _sized(self, model: LatentMDP) -> LatentMDP:
        """The fitted model with the world's horizon, discount and allowed actions."""
        allowed = restricted(model, self.space.allowed_actions())
        return allowed.replace(horizon=self.space.horizon, discount=self.space.discount)

    def status(self) -> str:
        """The number of contexts, and the return so far."""
        number = self.phases[-1].n_contexts
        return f"{f'contexts: {number}' if number else 'exploring'}, {super().status()}"

    def arrays(self) -> Arrays:
        """See `Learning`: the episodes, the phases and what the fit that is due goes on from."""
        state, best = self.state, self.best_phase
        assert isinstance(state, _FitDue | _Final)
        structure, model = state.last_fit if isinstance(state, _FitDue) else state.before_final_fit
        saved = {
            **super().arrays(),
            **packed("log", self.logs.to_fields()),
            **packed("final", state.final_logs.to_fields()),
            "phases": phase_rows(self.phases),
        }
        if structure is not None and model is not None:
            saved |= packed("structure", structure._asdict()) | packed("model", model.to_fields())
        if best is not None:
            saved["best_low"] = np.array(best.low)
            saved |= packed("earlier", {} if best.model is None else best.model.to_fields())
        return saved

    def _model_of(self, saved: Arrays, prefix: str) -> LatentMDP | None:
        """A model that was packed, if there is one."""
        fields = unpacked(saved, prefix)
        model = LatentMDP.from_fields(fields) if fields else None
        if model is not None and model.dimensions[1:3] != self.space.dimensions[1:3]:
            raise ValueError("the model has other sizes than the world")
        return model

    def restore(self, saved: Arrays) -> None:
        super().restore(saved)
        self.phases = phases_of(saved)
        if self.world.finding_rewards and "log_amounts" in saved:
            explored = int(saved["log_offsets"][self.phases[0].episodes])
            self._find_rewards(saved["log_amounts"][:explored])
        empty = self.no_logs.to_fields()
        self.logs, final_logs = (
            Trajectories.from_fields(empty | unpacked(saved, name)) for name in ("log", "final")
        )
        if len(self.logs) + len(final_logs) != self.done:
            raise ValueError(
                f"there are {len(self.logs) + len(final_logs)} episodes, and {self.done} are done"
            )
        chosen = unpacked(saved, "structure")
        if any(isinstance(value, np.ndarray) for value in chosen.values()):
            raise ValueError("what was chosen for the fit is not made of single values")
        structure = _ChosenStructure(**chosen) if chosen else None
        if "best_low" in saved:
            self.best_phase = _BestPhase(float(saved["best_low"]), self._model_of(saved, "earlier"))
        self.state = _FitDue(_LastFit(structure, self._model_of(saved, "model")), final_logs)

    def result(self, settings: dict[str, Any]) -> Run:
        """See `Learning`: the last fit, its plan, and what that earned in its own episodes."""
        self.plan()  # a fit is due if the run was resumed after the last episode, or had only one
        state = self.state
        assert isinstance(state, _Final)
        fit, plan, final_logs = state.fit, state.plan, state.final_logs
        fitted = [phase for phase in self.phases if phase.n_contexts]
        last = model_error(self.world, fit.model)
        curve = Curve(
            np.array([*(phase.first_episode for phase in fitted), self.done], np.int64),
            np.array([*(phase.model_error for phase in fitted), last]),
        )
        # Where no episode has paid yet, one reward is what an episode may have paid.
        payments = np.append(self.returns, self.space.reward_array)
        own, random = self.returns[len(self.logs) :], self.returns[: self.phases[0].episodes]
        value, before = mean_return(own, payments), mean_return(random, payments)
        visits = cell_counts(self.logs, ("state", "action"), shares=fit.responsibilities)
        logs = Trajectories.concat([self.logs, final_logs])
        messages = [
            *learn_warnings(plan, fit, value, logs, np.random.default_rng([self.key, self.done])),
            *self._not_found(fit, visits, final_logs),
        ]
        if self._all_failed():
            messages.append(f"{_WORSE}, and its policy is returned")
        if value and before and random.size >= _FEWEST and value.high < before.low:
            # What was learned is worse than nothing: random actions are what is known to be better.
            messages.append(
                f"the final policy earned {value} an episode, and random actions {before}: random "
                "actions are returned"
            )
            plan, value = Plan(UniformPolicy(), message="random actions"), before
        for message in messages:
            warnings.warn(message, LearnWarning, stacklevel=4)
        return self.run_of(
            settings,
            error_curve=curve,
            model=self._sized(fit.model),
            policy=plan.policy,
            plan=plan,
            fit=fit,
            phases=self.phases,
            logs=logs,
            value=value,
            warnings=tuple(messages),
        )


_WORSE = (
    "every plan that was tried earned less than an earlier phase: the world is not what the model "
    "takes it for"
)


def _recoded(logs: Trajectories, space: Space) -> Trajectories:
    """Logs with amounts, in the rewards or the levels of a space."""
    assert logs.amounts is not None
    values = space.reward_array
    if space.reward_edges is None:
        order = np.argsort(values)
        rewards = order[np.searchsorted(values[order], logs.amounts)]
    else:
        rewards = np.searchsorted(space.reward_edges, logs.amounts, side="right")
    new = {"rewards": rewards, "reward_values": values, "reward_edges": space.reward_edges}
    return Trajectories(**logs.to_fields() | new)


def _novelty(logs: Trajectories, shares: Floats, prior: float) -> float:
    """c, where c / n is the chance that a row seen n times in its context shows something new.

    By the rows of all contexts together, the n-th visit of each giving 1 / n of a chance: the sum
    of these over a row's visits is a harmonic number. It begins at `prior`, as if one chance had
    been seen before, and is next to nothing in a world without noise.
    """
    sizes = (logs.n_states, logs.n_actions, logs.n_rewards)
    keys, counts = occurring_cells(logs, ("state", "action", "next_state", "reward"), sizes, shares)
    row = np.unique(keys // (sizes[0] * sizes[2]), return_inverse=True)[1]
    rows = (int(row.max(initial=-1)) + 1, shares.shape[1])
    visits, distinct = np.zeros(rows), np.zeros(rows)
    np.add.at(visits, row, counts)
    np.add.at(distinct, row, np.minimum(1.0, counts))
    news = np.maximum(0.0, distinct - np.minimum(1.0, visits)).sum()
    chances = (digamma(np.maximum(1.0, visits)) + np.euler_gamma).sum()
    return float((news + prior) / (chances + 1.0))


def _random_share(fit: Fit, done: int) -> float:
    """The share of a phase that is played at random: 0 where contexts are told apart.

    A good policy of a wrong model can go on confirming it where single episodes say little of
    their context: then only actions that it would not take show what the contexts differ in.
    """
    # Before so many episodes fits are too uncertain to tell whether contexts are hidden, and
    # optimism explores anyway; from then on the share falls with the square root.
    first = 1_000
    if done < first:
        return 0.0
    # The instance `visitor` tells contexts apart by 0.25, `treatment` by 0.45, others by 0.7.
    hidden = max(0.0, 1.0 - told_apart(fit) / 0.4)
    return min(0.5, hidden) * (first / done) ** 0.5


def _next_fit(
    learner: Refit, logs: Trajectories, last: _LastFit, rng: np.random.Generator
) -> tuple[_ChosenStructure, Fit]:
    """EM over all episodes, with the structure of the last fit or, once they are twice as many,
    with a new one: then nothing is taken for granted but what the user said.
    """
    structure, model = last
    if structure is not None and len(logs) < 2 * structure.episodes:
        return structure, _em_fit(learner, logs, *structure[1:3], [model], rng, structure)
    requested = learner.reward_model
    reward_model = "state-action" if requested == "auto" else requested
    if requested == "auto" and model is not None:
        reward_model = model.reward_model
    # The search for the number of contexts begins below the last choice, because a few episodes
    # often fit best with too many contexts.
    least = 1 if model is None else max(1, model.n_contexts - 2)
    for again in (False, True):
        M = least if learner.n_contexts == "auto" else learner.n_contexts
        if learner.n_contexts == "auto" and may_show_contexts([logs]):
            # Fewer folds and starts than for logs that are read once, and an end with the first
            # number that predicts no better, since the choice is made again and again. What
            # contexts share is open; everybody acts by the same policy.
            settings = EM(
                FEW_CONTEXTS,
                behaviour="shared",
                shared_rewards="auto",
                shared_transitions="auto",
                shared_initial=learner.shared_initial,
                reward_model=reward_model,
                folds=2,
            )
            search = ContextSearch.of([logs], settings, rng, restarts=2, least=least)
            most = len(logs) if learner.max_contexts == MAX_CONTEXTS else learner.max_contexts
            search.run(max(least, most), patience=2 if least == 1 else 1)
            M = search.choice().n_contexts
        fit = _em_fit(learner, logs, M, reward_model, [model, None], rng)
        if structure is not None and structure[1:3] == (M, reward_model):
            # At most twice the strengths of the last time, as the data are: contexts once seen are
            # not given up.
            now = _structure_of(fit, len(logs))
            capped = now._replace(
                pseudo_counts=min(now.pseudo_counts, 2 * structure.pseudo_counts),
                reward_pseudo_counts=min(
                    now.reward_pseudo_counts, 2 * structure.reward_pseudo_counts
                ),
            )
            if capped != now:
                fit = _em_fit(learner, logs, M, reward_model, [fit.model, None], rng, capped)
        if again or requested != "auto":
            break
        better = preferred_reward_model(logs, fit.responsibilities)
        if better == reward_model:
            break
        least, reward_model, model = 1, better, fit.model
    return _structure_of(fit, len(logs)), fit


def _structure_of(fit: Fit, episodes: int) -> _ChosenStructure:
    """What a fit to so many episodes chose."""
    strengths = (fit.pseudo_counts, fit.reward_pseudo_counts)
    shared = "initial" in fit.shared
    model = fit.model
    return _ChosenStructure(episodes, model.n_contexts, model.reward_model, shared, *strengths)


def _em_fit(
    learner: Refit,
    logs: Trajectories,
    n_contexts: int,
    reward_model: RewardModel,
    starts: Sequence[LatentMDP | None],
    rng: np.random.Generator,
    structure: _ChosenStructure | None = None,
) -> Fit:
    """A fit from `starts`, None for fresh ones; from fresh ones only where the first does not suit.

    Without a `structure` its pseudo-counts and what contexts share are chosen by held-out
    likelihood.
    """
    of_rewards = None if structure is None else structure.reward_pseudo_counts
    shared = of_rewards == np.inf  # rewards that say nothing of the context
    em = EM(
        n_contexts,
        restarts=learner.restarts,
        pseudo_counts="auto" if structure is None else structure.pseudo_counts,
        reward_pseudo_counts=None if shared else of_rewards,
        shared_rewards=shared,
        shared_initial=learner.shared_initial if structure is None else structure.shared_initial,
        reward_model=reward_model,
        folds=2,  # few, since strengths are chosen each time the data have doubled
    )
    suits = starts[0] is not None and starts[0].n_contexts == n_contexts
    with without_fit_warnings():
        return em.fit(logs, start=list(starts) if suits else None, rng=rng)
