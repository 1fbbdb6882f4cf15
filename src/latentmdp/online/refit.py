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
has been, and then its plan may go there. What the world pays shows it: such a plan is given up
after a few episodes, the next one has learned from them, and only the last one's count.

What EM does not estimate by itself is settled whenever the data have doubled: how many contexts
there are (if that is to be found), whether rewards depend on the next state (if that is to be
found), and how many pseudo-counts to use.
"""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np

from latentmdp._util import arrays
from latentmdp._util.arrays import Arrays
from latentmdp._util.random import RNGLike, philox_key
from latentmdp.estimation import (
    EM,
    MAX_CONTEXTS,
    choose_contexts,
    may_show_contexts,
    preferred_reward_model,
    require_reward_model,
    restricted,
)
from latentmdp.fit import Fit, without_fit_warnings
from latentmdp.logs import Trajectories, cell_counts
from latentmdp.metrics import mean_return
from latentmdp.model import LatentMDP, RewardModel
from latentmdp.online.base import Learner, Learning
from latentmdp.online.bonus import Bonus, VarianceBonus
from latentmdp.online.doubts import LearnWarning, contradicted, doubts, told_apart
from latentmdp.online.empirical_model import Counts, EmpiricalModel
from latentmdp.online.lucrl import LUCRL, play_rounds
from latentmdp.online.posterior_sampling import drawn_fit
from latentmdp.online.psr_start import PSRStart
from latentmdp.online.run import Curve, Phase, Run, phase_rows, phases_of
from latentmdp.outcomes import Outcomes
from latentmdp.planning import (
    QMDP,
    ActingPlanner,
    Plan,
    Planner,
    acting_smoothing,
    certified_plan,
)
from latentmdp.policies import AlphaVectorPolicy, Policy, UniformPolicy
from latentmdp.simulation import play
from latentmdp.worlds import World

__all__ = ["Refit", "Settled", "learn"]

_FEWEST = 10
"""Episodes of a phase, and of a trial, at least: a fit costs more than they do."""

_DOUBLED = 2

_OWN_SHARE, _TRIALS = 5, 16
"""One episode in so many is the final policy's own; they are cut into so many trials, and from half
of them on a plan is the last."""

_REPLAN = "lazy"
"""Between two fits a plan is due when a count has grown by a fifth: as good a curve as a plan for
every episode, at a fraction of the time."""


_TOLD_APART = 0.4
"""How well contexts must be told apart for no random actions: `visitor` has 0.25, `treatment` 0.45,
the other instances more than 0.7."""

_MOST_BLIND = 0.5
"""The largest share of random episodes."""

_BLIND = 1_000
"""Episodes from which on some may be random, a share that falls with the square root: before, fits
are too uncertain to tell whether contexts are hidden, and optimism explores anyway."""
_PRIOR = 0.3
"""Pseudo-counts of one random outcome in every row of a drawn model, as in `PosteriorSampling`."""

_DRAWS = 1
"""Keeps the draws of models apart from those of the fits."""
_FOLDS, _STARTS, _FALL = 2, 2, 2
"""Folds, and starts of each fit, with which the number of contexts is chosen: fewer than for logs
that are read once, since it is chosen again each time the data have doubled. For the same reason
the search begins so much below the last choice, and ends with the first number that predicts no
better. It begins below because a few episodes often fit best with too many contexts."""

_STRENGTH_FOLDS = 3
"""Folds with which the pseudo-counts are chosen, for the same reason."""


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
    planner: Planner | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: bool = False,
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
        The largest number that "auto" tries.
    reward_model
        Whether a reward depends on (s, a), or on (s, a, s') as in most Gymnasium tables; "auto"
        decides by BIC, again each time the data have doubled.
    planner
        Makes the final plan; HSVI to a gap of 2 % within 10 seconds by default. While learning,
        plans are Q-MDP's, or PBVI's where Q-MDP falls short of its own bound.
    checkpoint
        A file to go on from after an interruption; the result is the same to the bit.

    Returns
    -------
    Run
        With `plan`, `fit`, `phases` and `logs`.
    """
    learner: Learner
    if method in ("likelihood", "sampling"):
        learner = Refit(
            n_contexts,
            explore=explore,
            growth=growth,
            restarts=restarts,
            bonus=bonus,
            max_contexts=max_contexts,
            reward_model=reward_model,
            planner=planner,
            sampling=method == "sampling",
        )
    elif method == "psr":
        require_reward_model(reward_model)
        if n_contexts == "auto":
            raise ValueError('method="psr" needs a known n_contexts')
        counted: RewardModel = "state-action" if reward_model == "auto" else reward_model
        learner = PSRStart(n_contexts, reward_model=counted, planner=planner)
    else:
        raise ValueError(f'method must be "likelihood", "sampling" or "psr", got {method!r}')
    return learner.run(world, episodes, rng, checkpoint, progress)


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
    planner: Planner | None = None
    sampling: bool = False

    def __post_init__(self) -> None:
        if self.n_contexts != "auto":
            arrays.positive_integer("n_contexts", self.n_contexts)
        require_reward_model(self.reward_model)
        if not 1.0 < self.growth < np.inf:
            raise ValueError(f"growth must be above 1 and finite, got {self.growth}")
        if not isinstance(self.bonus, Bonus | VarianceBonus | None):
            raise TypeError(
                f"bonus must be a Bonus, VarianceBonus or None, got {type(self.bonus).__name__}"
            )
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

    def settings(self) -> dict[str, Any]:
        """See `Learner`; the planner only makes the last plan, so a run may go on with another."""
        names = ("n_contexts", "explore", "growth", "restarts", "max_contexts", "reward_model")
        named = {name: getattr(self, name) for name in (*names, "sampling")}
        return {**named, "bonus": repr(self.bonus)}


class Settled(NamedTuple):
    """What was settled about the model, and with how many episodes."""

    episodes: int
    n_contexts: int
    reward_model: RewardModel
    pseudo_counts: float
    reward_pseudo_counts: float


class _Refitting(Learning[Trajectories]):
    """One run: all episodes so far, the current fit and what led there."""

    learner: Refit

    def __init__(self, learner: Refit, world: World, episodes: int, key: int) -> None:
        super().__init__(learner, world, world.space, episodes, key)
        self.logs = Trajectories(
            [],
            [],
            [],
            [0],
            n_states=self.space.n_states,
            n_actions=self.space.n_actions,
            reward_values=self.space.reward_array,
        )
        self.phases: tuple[Phase, ...] = ()
        self.fit: Fit | None = None
        self._model: LatentMDP | None = None  # of the last fit, which a resumed run does not have
        self._settled: Settled | None = None
        self._rounds: LUCRL | None = None  # how to act until the next fit
        self._drawn: Policy | None = None  # the same, where a model is drawn
        self._empirical: EmpiricalModel | None = None
        self._plan: Plan | None = None  # of the last fit, whose episodes are the last ones
        self._shown: Trajectories | None = None  # those episodes
        self._before: tuple[Settled | None, LatentMDP | None] = (None, None)  # the last fit

    def plan(self) -> None:
        """Fit all episodes so far; what it showed is what L-UCRL goes on from."""
        if self.done == 0:
            return
        if self.done >= self._own:
            if self._plan is None:
                self._finish()
            return
        fit = self.settle() if self.unsettled else self.refit()
        model = self._sized(fit.model)
        if self.learner.sampling:
            chance = np.random.default_rng([self.key, len(self.phases), _DRAWS])
            drawn = drawn_fit(chance, fit, self.logs, self.space, _PRIOR)
            self._drawn = ActingPlanner.suited(model).plan(drawn).policy
            return
        suited = ActingPlanner.suited(model)
        self._rounds = LUCRL(
            suited if suited.points else QMDP(),
            contexts="inferred",
            bonus=self.learner.bonus,
            replan=_REPLAN,
            reward_model=model.reward_model,
        )
        space = replace(self.space, n_contexts=model.n_contexts)
        visits = cell_counts(self.logs, ("state", "action"), shares=fit.responsibilities)
        rows = visits + np.minimum(fit.pseudo_counts, visits.sum(axis=0))
        episodes = fit.responsibilities.sum(axis=0)
        bonus = self.learner.bonus
        self._empirical = EmpiricalModel.begin(
            space,
            Counts.of_model(model, rows, episodes, space, model.reward_model),
            None if bonus is None else bonus.widths(space, self.episodes),
            acting_smoothing(space.n_states, space.n_rewards),
            self._rounds.growth(),
            None,
            learn_weights=True,
        )

    def _finish(self) -> None:
        """Make the final policy."""
        self._before = self._settled, self._model
        fit = self.settle() if self.unsettled else self.refit()
        model, planner = self._sized(fit.model), self.learner.planner
        plan = certified_plan(model) if planner is None else planner.plan(model)
        if isinstance(plan.policy, AlphaVectorPolicy):
            # What the model thinks impossible may happen.
            smoothing = acting_smoothing(model.n_states, model.n_rewards)
            plan = replace(plan, policy=plan.policy.filtering(plan.policy.model, smoothing))
        self._plan = plan

    @property
    def _own(self) -> int:
        """The first of the final policy's own episodes."""
        return self.episodes - max(1, self.episodes // _OWN_SHARE)

    @property
    def _trial(self) -> int:
        """Episodes of a trial of the final policy."""
        return max(1, (self.episodes - self._own) // _TRIALS)

    @property
    def _on_trial(self) -> bool:
        """Whether a final policy may still be given up, and enough episodes are left for another.

        A plan that has passed its trial is the last; so is any where a trial would show little.
        """
        enough = self._trial >= _FEWEST and self._shown is None
        return enough and self.done - self._own < _TRIALS // 2 * self._trial

    def play(self, most: int) -> Trajectories:
        """Play a phase: the longer, the more is known."""
        # The fits draw from the key itself, so the world's chance has a key of its own.
        key = philox_key(self.key)
        if self._plan is not None:
            length = self._trial if self._on_trial else self.episodes - self.done
            return play(self.world, self._plan.policy, length, key, self.done)
        if self.fit is None:
            number = self.learner.n_contexts
            length = max(self.learner.explore, 1 if number == "auto" else number)
            length = min(length, max(self._own, 1))
            return play(self.world, UniformPolicy(), length, key, 0)
        length = max(_FEWEST, int(self.done * (self.learner.growth - 1.0)))
        length = min(length, self._own - self.done)
        if self._drawn is not None:
            return play(self.world, self._drawn, length, key, self.done)
        blind = int(length * self._blind_share())
        assert self._rounds is not None
        assert self._empirical is not None
        rounds = play_rounds(
            self._rounds, self.world, self._empirical, key, self.done, length - blind
        )
        if not blind:
            return rounds
        random = play(self.world, UniformPolicy(), blind, key, self.done + length - blind)
        return Trajectories.concat([rounds, random])

    def _blind_share(self) -> float:
        """The share of a phase that is played at random: 0 where contexts are told apart.

        A good policy of a wrong model can go on confirming it where single episodes say little of
        their context: then only actions that it would not take show what the contexts differ in.
        """
        assert self.fit is not None
        if self.done < _BLIND:
            return 0.0
        hidden = max(0.0, 1.0 - told_apart(self.fit) / _TOLD_APART)
        return min(_MOST_BLIND, hidden) * (_BLIND / self.done) ** 0.5

    def absorb(self, batch: Trajectories) -> None:
        """Add the phase to the history; the contexts go to the record, where nobody looks."""
        now, fit = self.record(batch), self.fit
        phase = Phase(
            first_episode=now.start,
            episodes=len(batch),
            n_contexts=0 if fit is None else fit.model.n_contexts,
            log_likelihood=float("nan") if fit is None else fit.log_likelihood,
            model_error=self.model_error(None if fit is None else fit.model),
            mean_return=float(self.returns[now].mean()),
        )
        new = batch.without_contexts()
        if self._plan is None or self._given_up(self._plan, now):
            self.logs, self._plan = Trajectories.concat([self.logs, new]), None
        else:
            self._shown = new if self._shown is None else Trajectories.concat([self._shown, new])
        self.phases = (*self.phases, phase)

    def _given_up(self, plan: Plan, now: slice) -> bool:
        """Whether a trial contradicts what the plan promises."""
        value = mean_return(self.returns[now])
        return self._on_trial and value is not None and contradicted(plan, value) is not None

    @property
    def unsettled(self) -> bool:
        """Whether the data have doubled since the last time, or there was none."""
        return self._settled is None or len(self.logs) >= _DOUBLED * self._settled.episodes

    def refit(self) -> Fit:
        """EM over the whole history with what is settled."""
        assert self._settled is not None
        _, M, reward_model, moves, rewards = self._settled
        return self._em(M, reward_model, self._chance(), moves, rewards, fresh=False)

    def settle(self) -> Fit:
        """EM over the whole history with nothing taken for granted but what the user said."""
        rng, previous = self._chance(), self._model
        learner = self.learner
        asked, last = learner.reward_model, 1 if previous is None else previous.n_contexts
        least = max(1, last - _FALL)
        reward_model: RewardModel = "state-action" if asked == "auto" else asked
        if asked == "auto" and previous is not None:
            reward_model = previous.reward_model
        for again in (False, True):
            M = least if learner.n_contexts == "auto" else learner.n_contexts
            if learner.n_contexts == "auto" and may_show_contexts([self.logs]):
                with without_fit_warnings():
                    chosen = choose_contexts(
                        self.logs,
                        max_contexts=max(least, learner.max_contexts),
                        min_contexts=least,
                        reward_model=reward_model,
                        behaviour="shared",
                        folds=_FOLDS,
                        restarts=_STARTS,
                        patience=2 if least == 1 else 1,
                        rng=rng,
                    )
                M = chosen.n_contexts
            fit = self._em(M, reward_model, rng)
            if (most := self._most_pseudo_counts(M, reward_model)) is not None:
                moves, rewards = fit.pseudo_counts, fit.reward_pseudo_counts
                if moves > most[0] or rewards > most[1]:
                    found = (min(moves, most[0]), min(rewards, most[1]))
                    fit = self._em(M, reward_model, rng, *found)
            if again or asked != "auto":
                break
            better = preferred_reward_model(self.logs, fit.responsibilities)
            if better == reward_model:
                break
            least, reward_model = 1, better
        self._settled = Settled(
            len(self.logs), M, reward_model, fit.pseudo_counts, fit.reward_pseudo_counts
        )
        return fit

    def _most_pseudo_counts(
        self, n_contexts: int, reward_model: RewardModel
    ) -> tuple[float, float] | None:
        """Twice those of the last time, as the data are: contexts once seen are not given up."""
        settled = self._settled
        if settled is None or settled[1:3] != (n_contexts, reward_model):
            return None
        return _DOUBLED * settled.pseudo_counts, _DOUBLED * settled.reward_pseudo_counts

    def _chance(self) -> np.random.Generator:
        """Of the next fit."""
        fitted = sum(phase.first_episode < len(self.logs) for phase in self.phases)
        return np.random.default_rng([self.key, fitted])

    def _em(
        self,
        n_contexts: int,
        reward_model: RewardModel,
        rng: np.random.Generator,
        pseudo_counts: float | Literal["auto"] = "auto",
        reward_pseudo_counts: float | None = None,
        fresh: bool = True,
    ) -> Fit:
        """A fit from the last estimate, where it has as many contexts, and from fresh starts."""
        shared = reward_pseudo_counts == np.inf  # rewards that say nothing of the context
        em = EM(
            n_contexts,
            restarts=self.learner.restarts,
            pseudo_counts=pseudo_counts,
            reward_pseudo_counts=None if shared else reward_pseudo_counts,
            shared_rewards=shared,
            reward_model=reward_model,
            folds=_STRENGTH_FOLDS,
        )
        known = self._model is not None and self._model.n_contexts == n_contexts
        with without_fit_warnings():
            starts = [self._model, None] if fresh else [self._model]
            self.fit = em.fit(self.logs, start=starts if known else None, rng=rng)
        self._model = self.fit.model
        return self.fit

    def _sized(self, model: LatentMDP) -> LatentMDP:
        """The fitted model with the world's horizon, discount and allowed actions."""
        own = restricted(model, self.space.allowed_actions())
        return own.replace(horizon=self.space.horizon, discount=self.space.discount)

    def status(self) -> str:
        """The number of contexts."""
        return "exploring" if self.fit is None else f"contexts: {self.fit.model.n_contexts}"

    def arrays(self) -> Arrays:
        """See `Learning`: the history, the last estimate and the phases; the rest follows."""
        saved = {
            **super().arrays(),
            **{f"log_{name}": getattr(self.logs, name) for name in _LOGS},
            "phases": phase_rows(self.phases),
        }
        # A finished run makes its last fit again, from what it began with.
        settled, model = (self._settled, self._model) if self._plan is None else self._before
        if self._shown is not None:
            saved |= {f"shown_{name}": getattr(self._shown, name) for name in _LOGS}
        if settled is not None:
            episodes, M, reward_model, *strengths = settled
            joint = float(reward_model == "transition")
            saved["settled"] = np.array([episodes, M, joint, *strengths], dtype=np.float64)
        if model is not None:
            held = model.to_fields()
            saved |= {f"model_{name}": held[name] for name in _MODEL if held[name] is not None}
        return saved

    def restore(self, saved: Arrays) -> None:
        super().restore(saved)
        steps = {name: saved[f"log_{name}"] for name in _LOGS}
        self.logs = Trajectories(**{**self.logs.to_fields(), **steps})
        if "shown_offsets" in saved:
            steps = {name: saved[f"shown_{name}"] for name in _LOGS}
            self._shown = Trajectories(**{**self.logs.to_fields(), **steps})
        kept = len(self.logs) + (0 if self._shown is None else len(self._shown))
        if kept != self.done:
            raise ValueError(f"there are {kept} episodes, and {self.done} are done")
        self.phases = phases_of(saved)
        if "settled" in saved:
            episodes, M, by_transition, *strengths = saved["settled"].tolist()
            if not (episodes >= 1 and M >= 1 and all(k >= 0 for k in strengths)):
                raise ValueError("what was settled is out of range")
            reward_model: RewardModel = "transition" if by_transition else "state-action"
            self._settled = Settled(int(episodes), int(M), reward_model, *strengths)
        if "model_initial" in saved:
            held = {name: saved.get(f"model_{name}") for name in _MODEL}
            kind = None if self._settled is None else self._settled.reward_model
            others = {"horizon": self.space.horizon, "reward_values": self.space.reward_array}
            self._model = LatentMDP.from_fields({**held, **others, "reward_model": kind})
            if self._model.dimensions[1:3] != self.space.dimensions[1:3]:
                raise ValueError("the model has other sizes than the world")

    def result(self, settings: dict[str, Any]) -> Run:
        """See `Learning`: the last fit, its plan, and what that earned in its own episodes."""
        if self._plan is None:  # resumed after the last episode, or there were too few
            self._finish()
        plan, fit = self._plan, self.fit
        assert plan is not None
        assert fit is not None
        fitted = [phase for phase in self.phases if phase.n_contexts]
        curve = Curve(
            np.array([*(phase.first_episode for phase in fitted), self.done], np.int64),
            np.array([*(phase.model_error for phase in fitted), self.model_error(fit.model)]),
        )
        # Where no episode has paid yet, one reward is what an episode may have paid.
        seen = np.append(self.returns, self.space.reward_array)
        value = mean_return(self.returns[len(self.logs) :], seen)
        visits = cell_counts(self.logs, ("state", "action"), shares=fit.responsibilities)
        told = doubts(plan, fit, visits, value, self._shown)
        for message in told:
            warnings.warn(message, LearnWarning, stacklevel=4)
        return Run(
            returns=self.returns,
            beliefs=self.beliefs,
            contexts=self.contexts,
            error_curve=curve,
            model=self._sized(fit.model),
            policy=plan.policy,
            settings=settings,
            plan=plan,
            fit=fit,
            phases=self.phases,
            logs=self.logs
            if self._shown is None
            else Trajectories.concat([self.logs, self._shown]),
            value=value,
            warnings=told,
            seconds=self.seconds(),
        )


_LOGS = ("states", "actions", "rewards", "offsets")
_MODEL = (
    *("transitions", "reward_probs", "initial", "weights"),
    *(f"outcome_{name}" for name in Outcomes._fields),
)
