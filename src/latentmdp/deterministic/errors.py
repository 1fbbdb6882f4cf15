"""What exploration says when the environment is not what it was told."""

from typing import Any

from latentmdp.errors import LatentMDPError

__all__ = ["ExplorationError"]


class ExplorationError(LatentMDPError):
    """The environment is not deterministic given its context, or has more contexts than told.

    Attributes
    ----------
    observations
        C, the distinguishing observations of the node where it showed.
    state, action
        Where and what was done; None where it was the start of the episode.
    outcomes
        What followed: (next state, reward index) -> how often.
    """

    def __init__(
        self,
        reason: str,
        observations: frozenset[Any],
        state: int | None,
        action: int | None,
        outcomes: dict[Any, int],
    ) -> None:
        self.observations = observations
        self.state = state
        self.action = action
        self.outcomes = dict(outcomes)
        seen = ", ".join(f"{outcome} x{count}" for outcome, count in self.outcomes.items())
        place = f"state {state}, action {action}, given C = {_listed(observations)}"
        if state is None:
            place = "the start of the episode"
        super().__init__(f"{reason} (at {place}: outcomes {seen or 'none'})")


def _listed(observations: frozenset[Any]) -> str:
    return "{" + ", ".join(sorted(map(str, observations))) + "}"
