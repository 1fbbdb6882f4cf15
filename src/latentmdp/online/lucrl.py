"""Latent upper confidence reinforcement learning, L-UCRL [kwon2021, Alg. 1, 2, 3; Prop. 3.2].

    counts := those of the start
    for each episode:
        M~ := the empirical model of the counts, with hidden rewards (the bonus)      (Prop. 3.2)
        pi := the planner's policy for M~
        play pi
        b-hat := the belief over contexts, revealed (Alg. 2) or inferred (Alg. 3)
        counts of every context m += b-hat(m) times the episode's

b-hat is one at the true context where it is revealed. Inferred, it is

    p-hat_m = prod_t (alpha + (1 - alpha S Z) Phat_m(s_{t+1}, r_t | s_t, a_t)),
    b-hat(m) = p-hat_m / sum_n p-hat_n,

which is what the acting filter holds when the episode ends, since acting and learning use the same
smoothed filter. Algorithm 3 has neither weights nor initial distributions, and neither has the
filter here when contexts are inferred and weights are not given: started from weights that are
themselves learned from inferred contexts, the likelier contexts take in ever more episodes, and
with little separation the model fails to converge. With known weights, with `weights="learned"`, or
when contexts are revealed, the filter starts from w_m nuhat_m(s_1) instead: then the update is the
full step of online EM [cappe2009].

The regret of the planned policies is O(H S sqrt(M A N log)), N = H K, when contexts are revealed
[kwon2021, Thm. 3.3]. What replanning costs:

- "every": a plan for each episode, as in the paper. With Q-MDP only contexts whose counts changed
  are computed, which gives the same numbers; where contexts are inferred, an episode changes
  those that it most likely did not have by next to nothing, and they wait until such changes
  amount to a millionth of an episode.
- "changed": no call of the planner where no count has changed. The same policies again.
- a factor such as 1.2 ("lazy" is 1.2): a plan only when some N_m(s, a) has grown by the factor
  since the last one. Between plans the bonus of a pair is off by at most the square root of the
  factor, so the leading term of the regret grows by at most that much [jaksch2010]; it takes a
  fraction of the plans.
- "doubling": a plan only when some N_m(s, a) has reached a power of two [zhou2023, Alg. 2].
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from latentmdp._util import arrays, validation
from latentmdp._util.arrays import Arrays, Floats
from latentmdp._util.progress import progress_bar
from latentmdp._util.validation import require_choice
from latentmdp.belief import check_smoothing
from latentmdp.engines import blocks, run_blocks, thread_count
from latentmdp.fit import Fit
from latentmdp.logs import Episode, Trajectories
from latentmdp.model import LatentMDP, RewardModel
from latentmdp.online.base import (
    CountingLearning,
    EstimateAgent,
    EstimateFilter,
    Learner,
    Learning,
    played_logs,
)
from latentmdp.online.bonus import Bonus, VarianceBonus, Widths
from latentmdp.online.empirical_model import Counts, EmpiricalModel, same_contexts
from latentmdp.online.run import Run
from latentmdp.planning import QMDP, Plan, Planner
from latentmdp.policies import AlphaVectorPolicy
from latentmdp.simulation import gathered
from latentmdp.worlds import ModelWorld, Space, World, as_world, play_episode


@dataclass(frozen=True, eq=False)
class LUCRL(Learner):
    """L-UCRL over any planner.

    Parameters
    ----------
    planner
        Anything with `plan(model) -> Plan`. `QMDP` in a latent MDP runs in a compiled loop.
    contexts
        "revealed": the true context is told after each episode (Algorithm 2); "inferred": it is
        inferred from the episode with the current estimate (Algorithm 3, online EM).
    start
        What is known at first: None, a `LatentMDP` or a `Fit` (each row weighs `prior_count`
        visits), or `Trajectories` with contexts (their counts). With inferred contexts and
        nothing known all contexts look the same and stay so: give a start.
    prior_count
        Weight of a row of a start model.
    bonus
        `VarianceBonus`, or `Bonus` as in the paper; None explores not at all.
    smoothing
        alpha of the filter that acts and infers; min(0.01, 0.3 / (S Z)) by default. Near
        1 / (S Z) nothing can be inferred.
    replan
        "every", "changed", "lazy", "doubling" or a factor above 1; see the module's docstring.
    weights
        The weights w of the contexts where they are known, or "learned". By default they are
        learned if contexts are revealed, and left out if they are inferred, as in Algorithm 3; see
        the module's docstring for why.
    reward_model
        "state-action": rewards are counted by (s, a), as in the paper; "transition": by (s, a, s').
    n_contexts
        M, if it is to differ from the world's (or the start's).
    retry
        Whether an action that the last plan knew nothing of may be tried more than once in an
        episode, as in the paper. Plans do not change within an episode, so that an optimistic one
        may run against the same wall until its end. With Q-MDP only.
    """

    planner: Planner = QMDP()  # noqa: RUF009
    contexts: str = "revealed"
    start: LatentMDP | Trajectories | Fit | None = None
    prior_count: float = 10.0
    bonus: Bonus | VarianceBonus | None = VarianceBonus()  # noqa: RUF009
    smoothing: float | None = None
    replan: str | float = "every"
    weights: str | ArrayLike | None = None
    reward_model: RewardModel = "state-action"
    n_contexts: int | None = None
    retry: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.planner, Planner):
            raise TypeError(f"planner must have plan(model), got {type(self.planner).__name__}")
        require_choice("contexts", self.contexts, ("revealed", "inferred"))
        require_choice("reward_model", self.reward_model, ("state-action", "transition"))
        if not 0.0 <= self.prior_count < np.inf:
            raise ValueError(f"prior_count must not be negative, got {self.prior_count}")
        if isinstance(self.weights, str):
            require_choice("weights", self.weights, ("learned",))
        if self.bonus is not None and not isinstance(self.bonus, Bonus | VarianceBonus):
            raise TypeError(
                f"bonus must be a VarianceBonus, a Bonus or None, got {type(self.bonus).__name__}"
            )
        if self.n_contexts is not None:
            arrays.positive_integer("n_contexts", self.n_contexts)
        self.growth()

    def run_many(
        self,
        world: Any,
        episodes: int,
        seeds: int,
        *,
        first_seed: int = 0,
        threads: int | None = None,
        progress: bool = False,
    ) -> tuple[Run, ...]:
        """Run several times in one world; run i is that of `run` with rng=first_seed + i.

        Parameters
        ----------
        world, episodes
            As in `run`.
        seeds
            How many runs.
        threads
            Runs side by side in a `LatentMDP`; None takes all cores. Elsewhere there is one at a
            time. The result does not depend on it.
        progress
            Show a progress bar.
        """
        seeds = arrays.positive_integer("seeds", seeds)
        if first_seed < 0:
            raise ValueError(f"first_seed must not be negative, got {first_seed}")
        workers = thread_count(threads) if isinstance(as_world(world), ModelWorld) else 1
        with progress_bar(progress, "runs", seeds) as advance:

            def one_run(number: int, _: int) -> Run:
                run = self.run(world, episodes, rng=first_seed + number)
                advance(1)
                return run

            return tuple(run_blocks(one_run, blocks(seeds, 1), workers))

    def begin(self, world: World, episodes: int, key: int) -> Learning[Any]:
        """See `Learner`: counts of the start, and the widths of the bonus for K episodes."""
        return going_on(self, world, self.empirical_model(world, episodes), episodes, key)

    def empirical_model(self, world: World, episodes: int) -> EmpiricalModel:
        """What is known before the first episode."""
        space = self._space(world)
        counts = Counts.start(self.start, space, float(self.prior_count), self.reward_model)
        if self.contexts == "inferred" and space.n_contexts > 1 and same_contexts(counts):
            warnings.warn(
                'contexts="inferred" and all contexts start alike: nothing can tell them apart, '
                "so they will stay alike; give start=",
                stacklevel=4,
            )
        return self.counting(space, counts, episodes)

    def counting(self, space: Space, counts: Counts, episodes: int) -> EmpiricalModel:
        """Some counts, with the bonus of K episodes, the filter and the weights of this learner."""
        weights = None
        if self.weights is not None and not isinstance(self.weights, str):
            weights = validation.weights(self.weights, space.n_contexts)
        return EmpiricalModel.begin(
            space,
            counts,
            Widths() if self.bonus is None else self.bonus.widths(space, episodes),
            self._smoothing(space),
            self.growth(),
            weights,
            learn_weights=isinstance(self.weights, str) or self.contexts == "revealed",
            retry=self.retry,
        )

    def _space(self, world: World) -> Space:
        """The world's sizes with the number of contexts that is assumed."""
        space, assumed = world.space, self.n_contexts
        if assumed is None and self.contexts == "inferred" and self.start is not None:
            model = getattr(self.start, "model", self.start)
            assumed = getattr(model, "n_contexts", None)
        if assumed is None and not world.knows_contexts:
            raise ValueError("n_contexts: the environment does not tell it, give n_contexts=")
        if assumed is not None and assumed != space.n_contexts:
            if self.contexts == "revealed" and world.knows_contexts:
                raise ValueError(
                    f"n_contexts={assumed}, but the world reveals {space.n_contexts} contexts"
                )
            space = replace(space, n_contexts=assumed)
        return space

    def growth(self) -> float:
        """The factor by which a count must grow before a new plan; see `OptimisticValues`."""
        if isinstance(self.replan, str):
            require_choice("replan", self.replan, ("every", "changed", "lazy", "doubling"))
            if self.replan == "doubling":
                from latentmdp.online.kernels_lucrl import DOUBLING

                return DOUBLING
            # "lazy" takes a fourteenth of the plans at (7,15,3,30), with the same learning curve.
            return 1.2 if self.replan == "lazy" else 0.0
        if not 1.0 < self.replan < np.inf:
            raise ValueError(f"replan must be a factor above 1, got {self.replan}")
        return float(self.replan)

    def _smoothing(self, space: Space) -> float:
        if self.smoothing is None:
            # Enough to survive a wrong estimate, and well below 1 / (S Z), near which nothing can
            # be inferred.
            return min(0.01, 0.3 * (1.0 / (space.n_states * space.n_rewards)))
        check_smoothing(space, self.smoothing)
        return float(self.smoothing)


def going_on(
    learner: LUCRL, world: World, empirical: EmpiricalModel, episodes: int, key: int
) -> _LUCRL:
    """A run that goes on from what `empirical` holds, and goes on counting there."""
    kind: type[_LUCRL] = _PlannerLUCRL
    if isinstance(learner.planner, QMDP):
        kind = _CompiledLUCRL if isinstance(world, ModelWorld) else _QMDPLUCRL
    return kind(learner, world, empirical, episodes, key)


class _LUCRL(CountingLearning[Episode | None]):
    """Algorithm 1, one episode at a time, in the order of the paper."""

    learner: LUCRL
    _agent: EstimateAgent | _GreedyAgent

    def play(self, most: int) -> Episode | None:
        """Play the policy until the end of the episode."""
        return play_episode(self.world, self._agent, self.key, self.done)

    def absorb(self, batch: Episode | None) -> None:
        """Get the belief b-hat over contexts, and add the episode to the counts with it."""
        assert batch is not None
        inferred = self._agent.inferred()
        if self.learner.contexts == "revealed":
            belief = revealed_context(batch.context, self.space.n_contexts)  # Algorithm 2
        else:
            belief = inferred  # Algorithm 3
        self.count(batch, belief, inferred)

    def played_rounds(self, episodes: int) -> Trajectories:
        """So many episodes more of Algorithm 1, as they went."""
        played: list[Episode] = []
        for _ in range(episodes):
            self.plan()
            episode = self.play(1)
            assert episode is not None
            self.absorb(episode)
            played.append(episode)
        return gathered(played, self.world.space)


class _PlannerLUCRL(_LUCRL):
    """With any planner, in the optimistic model as a `LatentMDP`."""

    _planned: Counts | None = None  # the counts of the last plan
    _plan: Plan | None = None

    def plan(self) -> None:
        """Build the optimistic model (Prop. 3.2) and plan in it, if that is due."""
        if self._plan is None and self._planned is not None:
            self._follow(self._planned)  # resumed: find the last plan again
        optimistic = self.empirical.optimistic
        changed = self.learner.replan == "every" or bool(optimistic.stale.any())
        if self._plan is None or (bool(optimistic.due[0]) and changed):
            self._planned = self.empirical.counts()
            self.empirical.replan()
            self._follow(self._planned)

    def _follow(self, counts: Counts) -> None:
        model = self.empirical.optimistic_model(counts)
        self._plan = self.learner.planner.plan(model)
        self._agent = EstimateAgent(self._plan.policy, self.space, self.key, self.empirical)

    def arrays(self) -> Arrays:
        """See `Learning`; the counts of the last plan find it again."""
        planned = self._planned or self.empirical.counts()
        return {**super().arrays(), **planned.fields("planned_")}

    def restore(self, saved: Arrays) -> None:
        super().restore(saved)
        sizes, kind = self.space.dimensions, self.learner.reward_model
        self._planned = Counts.of_fields(saved, "planned_", sizes, kind)

    def result(self, settings: dict[str, Any]) -> Run:
        """See `Learning`: the outcome is a plan for the final counts."""
        self.empirical.require_plan()
        self.plan()
        assert self._plan is not None
        value = self._plan.upper if self._plan.upper is not None else self._plan.lower
        policy = self._plan.policy
        if isinstance(policy, AlphaVectorPolicy):
            smoothing = self.empirical.estimate.smoothing
            policy = policy.filtering(self.empirical.acting_model(), smoothing)
        return self.counted(policy, value, settings)


class _QMDPLUCRL(_LUCRL):
    """With Q-MDP, whose values are planned and acted on where they are."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._agent = _GreedyAgent(self.empirical)

    def plan(self) -> None:
        """Plan in the contexts whose counts changed, if that is due."""
        self.empirical.replan()

    def result(self, settings: dict[str, Any]) -> Run:
        """See `Learning`: the outcome is a plan for the final counts."""
        self.empirical.require_plan()
        self.empirical.replan()
        return self.counted(*self.empirical.outcome(), settings)


class _GreedyAgent(EstimateFilter):
    """Acts on the optimistic values by the learner's filter, as the compiled loop does."""

    def begin(self, episode: int, state: int) -> None:
        """See the first state."""
        super().begin(episode, state)
        self._tried = self.empirical.estimate.tried.copy()

    def act(self, t: int) -> int:
        """The best action for the belief."""
        from latentmdp.online.kernels_lucrl import greedy_action, note_trial

        optimistic, s, tried = self.empirical.optimistic, self._state, self._tried
        a = int(greedy_action(optimistic.values, t, s, self.belief, tried))
        if not optimistic.retry:
            column = a * optimistic.values.shape[3] + s
            note_trial(self.empirical.estimate.columns, column, tried)
        return a


class _CompiledLUCRL(_QMDPLUCRL):
    """The same rounds in one compiled loop, for Q-MDP in a latent MDP; the same numbers."""

    world: ModelWorld

    def plan(self) -> None:
        """The compiled loop plans."""

    def play(self, most: int) -> None:
        """Plan, play and absorb as many episodes of Algorithm 1 as are asked for."""
        self._rounds(most, 1)
        self.note_error()

    def absorb(self, batch: Episode | None) -> None:
        """The compiled loop has absorbed its episodes."""

    def played_rounds(self, episodes: int) -> Trajectories:
        """See `_LUCRL`."""
        first, played = self.done, self._rounds(episodes, episodes)
        return played_logs(played, self.contexts[first : self.done], self.world.space)

    def _rounds(self, episodes: int, rows: int) -> Any:
        """So many episodes more: a `Played` with a row for each, or with one for the last."""
        from latentmdp.online.kernels_lucrl import Played, play_lucrl

        played = Played.of(rows, self.space.required_horizon())
        first, stop = self.done, self.done + episodes
        while self.done < stop:  # the loop comes back where a list of cells is full
            self.empirical.make_room()
            rest = slice(self.done, stop)
            self.done += play_lucrl(
                self.world.chances,
                np.uint64(self.key),
                self.done,
                self.learner.contexts == "revealed",
                self.empirical.estimate,
                self.empirical.optimistic,
                self.returns[rest],
                self.beliefs[rest],
                self.contexts[rest],
                played,
                self.done - first,
            )
        return played


def revealed_context(context: int | None, n_contexts: int) -> Floats:
    """Algorithm 2: all weight on the true context."""
    if context is None or not 0 <= context < n_contexts:
        raise ValueError(
            f'contexts="revealed": the world gave context {context}, expected one in '
            f"[0, {n_contexts}); in an environment, info of the last step must hold it"
        )
    weights = np.zeros(n_contexts)
    weights[context] = 1.0
    return weights
