"""Baselines for learning by acting: fixed policies, a learner blind to contexts, no optimism.

- `uniform`: acts at random.
- `best_memoryless`, `qmdp_on_truth`: the best policy without memory, and Q-MDP, on the true model.
- `context_blind`: L-UCRL that believes in a single context, so UCRL on the average MDP.
- `em_without_optimism`: L-UCRL with inferred contexts and no bonus.
- `thompson_sampling`: known or fitted models; at every step a context is drawn from the belief and
  its own optimal policy acts [hong2020].

Q-learning, told the context or blind, is `online.QLearning`; posterior sampling over models that
must be learned is `online.PosteriorSampling`, and `learn(method="sampling")` with refits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from latentmdp._util.arrays import Floats
from latentmdp.belief import ContextFilter, filter_tables
from latentmdp.fit import Fit
from latentmdp.logs import History, Trajectories
from latentmdp.model import LatentMDP
from latentmdp.online.base import CountingLearning, Learner
from latentmdp.online.empirical_model import Counts, EmpiricalModel
from latentmdp.online.lucrl import LUCRL
from latentmdp.online.run import Run
from latentmdp.planning import QMDP, Memoryless, acting_smoothing, best_actions, evaluate, q_values
from latentmdp.policies import HistoryPolicy, Policy, UniformPolicy
from latentmdp.simulation import play
from latentmdp.worlds import World


@dataclass(frozen=True, eq=False)
class FixedPolicy(Learner):
    """Follows one policy whatever happens; episodes are counted where contexts are revealed.

    Parameters
    ----------
    policy
        A `Policy`, or a callable of a `History`.
    value
        What the policy is worth, if known: becomes `optimistic_value`.
    """

    policy: Policy | HistoryPolicy
    value: float = float("nan")
    after_learning: ClassVar[tuple[str, ...]] = ("value",)

    def begin(self, world: World, episodes: int, key: int) -> CountingLearning[Trajectories]:
        """See `Learner`."""
        empirical = EmpiricalModel.begin(world.space, Counts.zero(world.space))
        return _Following(self, world, empirical, episodes, key)


class _Following(CountingLearning[Trajectories]):
    """One run of a fixed policy: nothing depends on what was learned."""

    learner: FixedPolicy

    def plan(self) -> None:
        """There is nothing to plan."""

    def play(self, most: int) -> Trajectories:
        """Play as many episodes as are waited for."""
        return play(self.world, self.learner.policy, most, self.key, self.done)

    def absorb(self, batch: Trajectories) -> None:
        """Record them, and count them if their contexts are known."""
        self.record(batch)
        self.count_all(batch)

    def result(self, settings: dict[str, Any]) -> Run:
        return self.counted(self.learner.policy, self.learner.value, settings)


def uniform() -> FixedPolicy:
    """Act at random."""
    return FixedPolicy(UniformPolicy())


def qmdp_on_truth(model: LatentMDP) -> FixedPolicy:
    """Q-MDP with the true model known: what learning with Q-MDP can hope for."""
    plan = QMDP().plan(model)
    return FixedPolicy(plan.policy, float("nan") if plan.upper is None else plan.upper)


def best_memoryless(model: LatentMDP, **options: Any) -> FixedPolicy:
    """The best memoryless policy of the true model, by `latentmdp.Memoryless(**options)`."""
    plan = Memoryless(**options).plan(model)
    return FixedPolicy(plan.policy, evaluate(model, plan.policy).mean)


def thompson_sampling(model: LatentMDP) -> FixedPolicy:
    """Thompson sampling on the belief over the contexts of a model, the true one or a fitted one.

    The policy is a callable of a `History`, see `ThompsonPolicy`.
    """
    return FixedPolicy(ThompsonPolicy(model))


class ThompsonPolicy:
    """Draw a context from the belief at every step, and act as is optimal in it (mTS, [hong2020]).

    The probability of an action is the belief in the contexts whose optimal action it is. It never
    pays for information, so it may lose where that must be bought.

    Parameters
    ----------
    model
        Whose contexts are told apart; its filter is smoothed as that of any fitted model.
    """

    def __init__(self, model: LatentMDP) -> None:
        self.model = model
        self._actions = best_actions(model, q_values(model))
        smoothing = acting_smoothing(model.n_states, model.n_rewards)
        self._filter = ContextFilter(filter_tables(model, smoothing))
        self._history, self._belief = History((), (), ()), np.empty((3, model.n_contexts))

    def __call__(self, history: History) -> Floats:
        """The probability of each action after a history."""
        self._follow(history)
        t, s = len(history.actions), history.states[-1]
        actions = self._actions[min(t, len(self._actions) - 1), s]
        chances: Floats = np.zeros(self.model.n_actions)
        np.add.at(chances, actions, self._belief[0])
        return chances

    def _follow(self, history: History) -> None:
        """The belief after a history: one step more where it continues the last one."""
        steps = len(self._history.actions)
        begun = (history.states[: steps + 1], history.actions[:steps], history.rewards[:steps])
        if begun != self._history:
            steps, self._belief = 0, self._filter.start(history.states[0])
        for t in range(steps, len(history.actions)):
            step = (history.states[t], history.actions[t], history.states[t + 1])
            self._belief = self._filter.observe(self._belief, *step, history.rewards[t])
        self._history = history

    def __repr__(self) -> str:
        return f"ThompsonPolicy({self.model.fingerprint()[:12]})"


def context_blind(**options: Any) -> LUCRL:
    """UCRL that takes the latent MDP for a plain one; `options` as for `LUCRL`."""
    return LUCRL(**{"contexts": "inferred", "n_contexts": 1, **options})


def em_without_optimism(start: LatentMDP | Trajectories | Fit, **options: Any) -> LUCRL:
    """Online EM and greedy planning: Algorithm 3 without a bonus."""
    return replace(LUCRL(**{"contexts": "inferred", **options}), start=start, bonus=None)
