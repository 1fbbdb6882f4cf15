"""What a learner is told about a world before it acts: sizes, reward values, horizon, discount."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from latentmdp.model import LatentMDP

__all__ = ["Space"]


@dataclass(frozen=True)
class Space:
    """The sizes of a latent MDP."""

    n_contexts: int
    n_states: int
    n_actions: int
    reward_values: tuple[float, ...]
    horizon: int
    discount: float = 1.0

    @classmethod
    def of(cls, model: LatentMDP) -> "Space":
        """The space of a model."""
        return cls(
            model.n_contexts,
            model.n_states,
            model.n_actions,
            tuple(model.reward_values.tolist()),
            model.horizon,
            model.discount,
        )

    def with_contexts(self, n_contexts: int) -> "Space":
        """The same space with another number of contexts."""
        return replace(self, n_contexts=n_contexts)

    @property
    def n_rewards(self) -> int:
        """Z."""
        return len(self.reward_values)

    @property
    def rewards(self) -> NDArray[np.float64]:
        """The reward values as an array."""
        return np.asarray(self.reward_values)

    @property
    def reward_span(self) -> float:
        """max(r, 0) - min(r, 0) over the reward values: 1 for rewards in {0, 1}."""
        return max(*self.reward_values, 0.0) - min(*self.reward_values, 0.0)

    @property
    def largest_return(self) -> float:
        """`steps` times the span: H for rewards in {0, 1}."""
        return self.steps * self.reward_span

    @property
    def steps(self) -> float:
        """1 + discount + ... + discount^{H-1}."""
        return float((self.discount ** np.arange(self.horizon)).sum())

    def uniform_model(self) -> LatentMDP:
        """A model of these sizes that knows nothing: every outcome equally likely."""
        M, S, A, Z = self.n_contexts, self.n_states, self.n_actions, self.n_rewards
        return LatentMDP(
            np.full((M, S, A, S), 1.0 / S),
            np.full((M, S, A, Z), 1.0 / Z),
            horizon=self.horizon,
            discount=self.discount,
            reward_values=self.reward_values,
        )

    def require_fit(self, name: str, other: object, *, contexts: bool = True) -> None:
        """Raise unless `other` (a model or a space) has the same states, actions and rewards."""
        fields = ("n_contexts", "n_states", "n_actions", "n_rewards")
        for field in fields if contexts else fields[1:]:
            mine, theirs = getattr(self, field), getattr(other, field)
            if mine != theirs:
                raise ValueError(f"{name} has {field}={theirs}, the world {mine}")
        values = tuple(np.asarray(getattr(other, "reward_values")).tolist())  # noqa: B009
        if values != self.reward_values:
            raise ValueError(f"{name} has reward_values {values}, the world {self.reward_values}")
