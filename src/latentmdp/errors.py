"""Exceptions: every public error is a `ValueError`, a `TypeError` or one of these."""

__all__ = [
    "DeviceError",
    "EngineError",
    "FormatError",
    "ImpossibleObservationError",
    "LatentMDPError",
    "ModelError",
    "RecoveryError",
    "TooLargeError",
    "TrajectoryError",
    "WorldError",
]


class LatentMDPError(Exception):
    """Base of every error that is specific to this library."""


class ModelError(LatentMDPError, ValueError):
    """The arrays do not describe a latent MDP; the message names the culprit."""


class TrajectoryError(LatentMDPError, ValueError):
    """The logs are malformed, or do not fit a model's sizes; the message names episode and step."""


class WorldError(LatentMDPError, ValueError, TypeError):
    """A world did what it must not; the message names it, the episode and the step.

    It may have answered with a wrong value or with something of a wrong type.
    """


class FormatError(LatentMDPError, ValueError):
    """A file cannot be read or written; the message names the file and the reason."""


class ImpossibleObservationError(LatentMDPError, ValueError):
    """An observation has probability zero in every context that is still possible."""


class TooLargeError(LatentMDPError, MemoryError):
    """What was asked for does not fit into memory; the message says the size and what is free."""


class DeviceError(LatentMDPError, RuntimeError):
    """Work was asked for on a device that cannot do it; the message says what is missing."""


class EngineError(LatentMDPError):
    """Work could not run where it was sent; the message says where and why."""


class RecoveryError(LatentMDPError):
    """A latent MDP could not be recovered: FAIL in [kwon2021, Alg. 6].

    Attributes
    ----------
    step : str
        The step of the algorithm that failed.
    evidence : str
        What it saw.
    """

    def __init__(self, step: str, evidence: str) -> None:
        super().__init__(step, evidence)
        self.step = step
        self.evidence = evidence

    def __str__(self) -> str:
        return f"{self.step} failed: {self.evidence}"
