"""Latent upper confidence reinforcement learning, L-UCRL [kwon2021, Alg. 1, 2, 3; Prop. 3.2].

Each episode: build the optimistic model from the counts, plan in it, play the plan, get a belief
b-hat over contexts (revealed or inferred), and add the episode to the counts of every context m
with weight b-hat(m).

The regret of the planned policies is O(H S sqrt(M A N log)), N = H K, when contexts are revealed
[kwon2021, Thm. 3.3]. What replanning costs:

- "every": a plan for each episode, as in the paper. With Q-MDP in a latent MDP only contexts whose
  counts changed are computed, which gives the same numbers.
- "changed": no call of the planner where no count has changed. The same policies again.
- a factor such as 1.2 ("lazy" is 1.2): a plan only when some N_m(s, a) has grown by the factor
  since the last one. Between plans the bonus of a pair is off by at most the square root of the
  factor, so the leading term of the regret grows by at most that much [jaksch2010]; it takes a
  fraction of the plans.
"""

from __future__ import annotations

import hashlib
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from latentmdp._util import arrays
from latentmdp._util.arrays import Floats
from latentmdp.model import LatentMDP
from latentmdp.online.base import Learner
from latentmdp.online.bonus import Bonus
from latentmdp.online.contexts import inferred_context, revealed_context
from latentmdp.online.counts import Counts
from latentmdp.online.empirical_model import NO_BONUS, LearnerState, optimistic_model
from latentmdp.online.playing import Agent, absorb, play_episode
from latentmdp.online.session import Session
from latentmdp.online.worlds import ModelWorld, World
from latentmdp.planning import QMDP, Plan, Planner
from latentmdp.policies import AlphaVectorPolicy, Policy
from latentmdp.space import Space
from latentmdp.trajectories import Trajectories

__all__ = ["LUCRL"]


CONTEXTS = ("revealed", "inferred")
LAZY = 1.2
SMOOTHING = 0.01
SMOOTHING_SHARE = 0.3


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
        `Bonus`; None explores not at all.
    smoothing
        alpha of the filter that acts and infers; min(0.01, 0.3 / (S Z)) by default. Near
        1 / (S Z) nothing can be inferred.
    replan
        "every", "changed", "lazy" or a factor above 1; see the module's docstring.
    weights
        The weights w of the contexts where they are known, or "learned". By default they are
        learned if contexts are revealed, and left out if they are inferred, as in Algorithm 3 (see
        `latentmdp.online.contexts` for why).
    reward_model
        "state-action": rewards are counted by (s, a), as in the paper; "transition": by (s, a, s').
    n_contexts
        M, if it is to differ from the world's (or the start's).
    """

    planner: Planner = QMDP()  # noqa: RUF009
    contexts: str = "revealed"
    start: LatentMDP | Trajectories | Any | None = None
    prior_count: float = 10.0
    bonus: Bonus | None = Bonus()  # noqa: RUF009
    smoothing: float | None = None
    replan: str | float = "every"
    weights: str | ArrayLike | None = None
    reward_model: str = "state-action"
    n_contexts: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.planner, Planner):
            raise TypeError(f"planner must have plan(model), got {type(self.planner).__name__}")
        _choice("contexts", self.contexts, CONTEXTS)
        _choice("reward_model", self.reward_model, ("state-action", "transition"))
        if not (np.isfinite(self.prior_count) and self.prior_count >= 0.0):
            raise ValueError(f"prior_count must not be negative, got {self.prior_count}")
        if isinstance(self.weights, str):
            _choice("weights", self.weights, ("learned",))
        if self.bonus is not None and not isinstance(self.bonus, Bonus):
            raise TypeError(f"bonus must be a Bonus or None, got {type(self.bonus).__name__}")
        if self.n_contexts is not None:
            arrays.positive_integer("n_contexts", self.n_contexts)
        self._growth()

    def _growth(self) -> float:
        """The factor by which a count must grow before a new plan; 0 for every episode."""
        if isinstance(self.replan, str):
            _choice("replan", self.replan, ("every", "changed", "lazy"))
            return LAZY if self.replan == "lazy" else 0.0
        if not 1.0 < self.replan < np.inf:
            raise ValueError(f"replan must be a factor above 1, got {self.replan}")
        return float(self.replan)

    def _space(self, world: World) -> Space:
        """The world's sizes with the number of contexts that is assumed."""
        space = world.space
        assumed = self.n_contexts
        if assumed is None and self.contexts == "inferred" and self.start is not None:
            model = getattr(self.start, "model", self.start)
            assumed = getattr(model, "n_contexts", None)
        told = getattr(world, "tells_contexts", True)
        if assumed is None and not told:
            raise ValueError("n_contexts: the environment does not tell it, give n_contexts=")
        if assumed is not None and assumed != space.n_contexts:
            if self.contexts == "revealed" and told:
                raise ValueError(
                    f"n_contexts={assumed}, but the world reveals {space.n_contexts} contexts"
                )
            space = space.with_contexts(assumed)
        return space

    def _begin(self, world: World, episodes: int) -> LearnerState:
        space = self._space(world)
        by_next = self.reward_model == "transition"
        counts = Counts.start(self.start, space, float(self.prior_count), by_next)
        if self.contexts == "inferred" and space.n_contexts > 1 and _alike(counts):
            warnings.warn(
                'contexts="inferred" and all contexts start alike: nothing can tell them apart, '
                "so they will stay alike; give start=",
                stacklevel=3,
            )
        learned = isinstance(self.weights, str)
        known = None
        if self.weights is not None and not isinstance(self.weights, str):
            known = _known_weights(self.weights, space)
        return LearnerState.begin(
            space,
            counts,
            NO_BONUS if self.bonus is None else self.bonus.widths(space, episodes),
            self._smoothing(space),
            self._growth(),
            known,
            learn_weights=learned or self.contexts == "revealed",
        )

    def _smoothing(self, space: Space) -> float:
        largest = 1.0 / (space.n_states * space.n_rewards)
        if self.smoothing is None:
            return min(SMOOTHING, SMOOTHING_SHARE * largest)
        if not 0.0 <= self.smoothing <= largest:
            raise ValueError(
                f"smoothing must lie in [0, 1/(S Z)] = [0, {largest:g}], got {self.smoothing}"
            )
        return float(self.smoothing)

    def _advance(self, session: Session, stop: int) -> None:
        world = session.world
        if isinstance(self.planner, QMDP) and isinstance(world, ModelWorld):
            self._advance_compiled(session, world, stop)
            return
        while session.done < stop:
            played = play_episode(session, self._agent(session))
            if self.contexts == "revealed":
                belief = revealed_context(played.context, session.state.space.n_contexts)
            else:
                belief = inferred_context(played.belief)
            absorb(session, played, belief)

    def _advance_compiled(self, session: Session, world: ModelWorld, stop: int) -> None:
        from latentmdp._kernels.lucrl import play_lucrl

        now = slice(session.done, stop)
        play_lucrl(
            world.tables,
            np.uint64(session.key),
            session.done,
            self.contexts == "revealed",
            session.state.estimate,
            session.state.plans,
            session.returns[now],
            session.beliefs[now],
            session.contexts[now],
        )
        session.done = stop

    def _agent(self, session: Session) -> Agent:
        """The agent of the current plan, planning first if that is due."""
        from latentmdp._kernels.optimism import replan

        plans = session.state.plans
        memory = session.memory
        if "agent" not in memory and session.planned is not None:
            self._plan(session, session.planned)  # resumed: find the last plan again
        due = bool(plans.due[0]) and (self.replan == "every" or bool(plans.stale.any()))
        if "agent" not in memory or due:
            session.planned = session.state.counts()
            replan(session.state.estimate, plans)  # sets the bonus
            self._plan(session, session.planned)
        agent: Agent = memory["agent"]
        return agent

    def _plan(self, session: Session, counts: Counts) -> None:
        model = optimistic_model(session.state, counts)
        plan = self.planner.plan(model)
        session.memory.update(plan=plan, agent=Agent(plan.policy, model))

    def _outcome(self, session: Session) -> tuple[Policy, float]:
        from latentmdp._kernels.optimism import replan

        state = session.state
        state.plans.due[0] = True  # the outcome is a plan for the final counts
        if isinstance(self.planner, QMDP) and isinstance(session.world, ModelWorld):
            replan(state.estimate, state.plans)
            return state.policy(), _informed(state)
        self._agent(session)
        plan: Plan = session.memory["plan"]
        value = plan.upper if plan.upper is not None else plan.lower
        policy = plan.policy
        if isinstance(policy, AlphaVectorPolicy):
            policy = AlphaVectorPolicy(
                policy.vectors,
                policy.actions,
                policy.offsets,
                state.acting_model(),
                state.estimate.smoothing,
            )
        return policy, float("nan") if value is None else float(value)

    def _settings(self) -> dict[str, Any]:
        weights = self.weights
        if weights is not None and not isinstance(weights, str):
            weights = np.asarray(weights).tolist()
        return {
            "planner": repr(self.planner),
            "contexts": self.contexts,
            "start": _digest(self.start),
            "prior_count": float(self.prior_count),
            "bonus": repr(self.bonus),
            "smoothing": self.smoothing,
            "replan": self.replan,
            "weights": weights,
            "reward_model": self.reward_model,
            "n_contexts": self.n_contexts,
        }


def _informed(state: LearnerState) -> float:
    """The informed bound of the last Q-MDP plan in the optimistic model."""
    from latentmdp._kernels.induction import informed_value

    model = optimistic_model(state, state.counts())
    assert model.initial_bonus is not None
    value = informed_value(state.plans.values, model.weights, model.initial)
    return float(value + model.weights @ model.initial_bonus)


def _alike(counts: Counts) -> bool:
    return all(bool((a == a[:1]).all()) for a in (counts.transitions, counts.rewards))


def _known_weights(weights: ArrayLike, space: Space) -> Floats:
    known = arrays.as_floats("weights", weights)
    if known.shape != (space.n_contexts,):
        raise ValueError(f"weights must have shape {(space.n_contexts,)}, got {known.shape}")
    return arrays.distributions("weights", known[None], ())[0]


def _choice(name: str, value: Any, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, known))}, got {value!r}")


def _digest(start: Any) -> str | None:
    if start is None:
        return None
    if isinstance(start, Trajectories):
        digest = hashlib.sha256()
        for name in ("states", "actions", "rewards", "offsets", "contexts", "counts"):
            array = getattr(start, name)
            digest.update(name.encode() + (b"" if array is None else array.tobytes()))
        return digest.hexdigest()
    model = getattr(start, "model", start)
    return str(model.fingerprint()) if isinstance(model, LatentMDP) else repr(start)
