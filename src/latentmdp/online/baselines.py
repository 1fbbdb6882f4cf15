"""Baselines for L-UCRL: the same interface, the same results.

- `uniform`: acts at random.
- `best_memoryless`, `qmdp_on_truth`: the best policy without memory, and Q-MDP, on the true model.
- `context_blind`: L-UCRL that believes in a single context, so UCRL on the average MDP.
- `em_without_optimism`: L-UCRL with inferred contexts and no bonus.
- `PosteriorSampling`: samples the context of each episode and a model from Dirichlet posteriors.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from latentmdp._util.arrays import Floats
from latentmdp._util.fields import Fielded
from latentmdp.model import LatentMDP
from latentmdp.online.base import Learner
from latentmdp.online.contexts import revealed_context
from latentmdp.online.counts import Counts
from latentmdp.online.empirical_model import NO_BONUS, LearnerState
from latentmdp.online.lucrl import LUCRL
from latentmdp.online.playing import Agent, absorb, play_episode
from latentmdp.online.session import Session
from latentmdp.online.worlds import ModelWorld, World
from latentmdp.planning import QMDP, Memoryless, Plan, Planner, evaluate
from latentmdp.policies import Policy, UniformPolicy
from latentmdp.trajectories import Trajectories

__all__ = [
    "FixedPolicy",
    "PosteriorSampling",
    "best_memoryless",
    "context_blind",
    "em_without_optimism",
    "qmdp_on_truth",
    "uniform",
]


@dataclass(frozen=True, eq=False)
class FixedPolicy(Learner):
    """Follows one policy whatever happens; counts are kept where contexts are revealed.

    Parameters
    ----------
    policy
        The policy.
    value
        What the policy is worth, if known: becomes `optimistic_value`.
    """

    policy: Policy
    value: float = float("nan")

    def _begin(self, world: World, episodes: int) -> LearnerState:
        space = world.space
        return LearnerState.begin(
            space, Counts.zero(space, False), NO_BONUS, 0.0, 0.0, None, learn_weights=True
        )

    def _advance(self, session: Session, stop: int) -> None:
        if isinstance(session.world, ModelWorld):
            self._simulate(session, session.world, stop)
            return
        space = session.state.space
        agent = Agent(self.policy, session.state.model(), own_filter=True)
        while session.done < stop:
            played = play_episode(session, agent)
            known = 0 <= played.context < space.n_contexts
            weights = np.zeros(space.n_contexts)
            if known:
                weights = revealed_context(played.context, space.n_contexts)
            absorb(session, played, weights)

    def _simulate(self, session: Session, world: ModelWorld, stop: int) -> None:
        """A batch of episodes at once: nothing depends on what was learned."""
        from latentmdp._kernels.rollout import rollout

        first, state, H = session.done, session.state, session.state.space.horizon
        states = np.empty((stop - first, H + 1), np.int32)
        actions, rewards = (np.empty((stop - first, H), np.int32) for _ in range(2))
        contexts = session.contexts[first:stop]
        model = world.model
        assert model is not None
        acting = self.policy.acting(model)
        steps = (states, actions, rewards, contexts)
        rollout(world.tables, acting, np.uint64(session.key), first, *steps)
        logs = Trajectories.from_arrays(
            states, actions, rewards, contexts, reward_values=model.reward_values
        )
        session.returns[first:stop] = logs.returns(model.discount)
        new, old = Counts.start(logs, state.space, 0.0, False), state.counts()
        state.set_counts(
            Counts(
                old.transitions + new.transitions,
                old.rewards + new.rewards,
                old.initial + new.initial,
            )
        )
        session.done = stop

    def _outcome(self, session: Session) -> tuple[Policy, float]:
        return self.policy, self.value

    def _settings(self) -> dict[str, Any]:
        told = {"policy": repr(self.policy)}
        if isinstance(self.policy, Fielded):  # two different policies may print alike
            told["fingerprint"] = self.policy.fingerprint()
        return told


def uniform() -> FixedPolicy:
    """Act at random."""
    return FixedPolicy(UniformPolicy())


def qmdp_on_truth(model: LatentMDP) -> FixedPolicy:
    """Q-MDP with the true model known: what learning with Q-MDP can hope for."""
    return _planned(QMDP().plan(model))


def best_memoryless(model: LatentMDP, **options: Any) -> FixedPolicy:
    """The best memoryless policy of the true model, by `latentmdp.Memoryless(**options)`."""
    plan = Memoryless(**options).plan(model)
    return FixedPolicy(plan.policy, evaluate(model, plan.policy).mean)


def context_blind(**options: Any) -> LUCRL:
    """UCRL that takes the latent MDP for a plain one; `options` as for `LUCRL`."""
    return LUCRL(**{"contexts": "inferred", "n_contexts": 1, **options})


def em_without_optimism(start: Any, **options: Any) -> LUCRL:
    """Online EM and greedy planning: Algorithm 3 without a bonus."""
    return replace(LUCRL(**{"contexts": "inferred", **options}), start=start, bonus=None)


def _planned(plan: Plan) -> FixedPolicy:
    value = float("nan") if plan.upper is None else plan.upper
    return FixedPolicy(plan.policy, value)


@dataclass(frozen=True, eq=False)
class PosteriorSampling(Learner):
    """Sample a model, plan in it, act; then sample the episode's context and count it there.

    Every row of T, R and nu has a Dirichlet posterior with `prior` pseudo-counts per outcome.
    Acting and the posterior of the context use the sampled model's own filter.

    Parameters
    ----------
    planner, contexts, start, prior_count
        As for `LUCRL`.
    prior
        Pseudo-counts per outcome.
    """

    planner: Planner = QMDP()  # noqa: RUF009
    contexts: str = "revealed"
    start: Any = None
    prior_count: float = 10.0
    prior: float = 0.3

    def __post_init__(self) -> None:
        self._as_lucrl()
        if not self.prior > 0.0:
            raise ValueError(f"prior must be positive, got {self.prior}")

    def _as_lucrl(self) -> LUCRL:
        """The learner whose arguments and start this one shares."""
        return LUCRL(
            planner=self.planner,
            contexts=self.contexts,
            start=self.start,
            prior_count=self.prior_count,
            bonus=None,
        )

    def _begin(self, world: World, episodes: int) -> LearnerState:
        return self._as_lucrl()._begin(world, episodes)

    def _advance(self, session: Session, stop: int) -> None:
        M = session.state.space.n_contexts
        while session.done < stop:
            chance = np.random.default_rng((session.key, session.done))
            model = self._sample(session.state, chance)
            agent = Agent(self.planner.plan(model).policy, model, own_filter=True)
            played = play_episode(session, agent)
            context = played.context
            if self.contexts == "inferred":
                context = int(chance.choice(M, p=agent.posterior()))
            absorb(session, played, revealed_context(context, M))

    def _sample(self, state: LearnerState, chance: np.random.Generator) -> LatentMDP:
        """A model drawn from the posterior."""
        counts, space = state.counts(), state.space
        drawn = [
            _dirichlet_rows(chance, rows + self.prior)
            for rows in (counts.transitions, counts.rewards, counts.initial)
        ]
        return LatentMDP(
            drawn[0],
            drawn[1],
            initial=drawn[2],
            weights=state.weights(),
            horizon=space.horizon,
            discount=space.discount,
            reward_values=space.rewards,
        )

    def _outcome(self, session: Session) -> tuple[Policy, float]:
        plan = self.planner.plan(session.state.acting_model())
        value = plan.upper if plan.upper is not None else plan.lower
        return plan.policy, float("nan") if value is None else float(value)

    def _settings(self) -> dict[str, Any]:
        return {**self._as_lucrl()._settings(), "prior": self.prior}


def _dirichlet_rows(chance: np.random.Generator, parameters: Floats) -> Floats:
    """One draw from the Dirichlet distribution of every last-axis row."""
    gammas = np.maximum(chance.standard_gamma(parameters), 1e-300)
    return gammas / gammas.sum(axis=-1, keepdims=True)
