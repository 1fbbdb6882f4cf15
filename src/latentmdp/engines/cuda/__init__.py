"""Work on one NVIDIA GPU, through numba-cuda (the extra `[gpu]`).

What runs there gives the trajectories, values and beliefs of the CPU, bit for bit: kernels call the
same compiled bodies. Work that would not fit into the GPU's memory is cut into pieces, whose sizes
do not change the result. `version_of` lists what there is; nobody else asks whether a GPU works.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

from latentmdp.engines.cuda.device import gpu
from latentmdp.engines.threads import Threads
from latentmdp.errors import DeviceError

R = TypeVar("R")


class Cuda(Threads):
    """One NVIDIA GPU: it plays, evaluates and filters episodes, and makes the passes of EM.

    Parameters
    ----------
    threads
        Threads of this process that prepare what goes there and write what comes from there; None
        takes every core.
    scratch
        Folder for temporary files; by default that of the system.

    Raises
    ------
    DeviceError
        There is no GPU, or what is needed to use it is not installed.
    """

    def __init__(
        self, threads: int | None = None, *, scratch: str | os.PathLike[str] | None = None
    ) -> None:
        super().__init__(threads, scratch=scratch)
        gpu()

    def __repr__(self) -> str:
        return "Cuda()"

    @property
    def within(self) -> Threads:
        """The same GPU, which all threads share."""
        return self

    def version_of(self, work: Callable[..., Any]) -> Callable[..., Any] | None:
        """What a GPU runs instead of a loop of the CPU; None if there is nothing."""
        from latentmdp._kernels.belief import posteriors
        from latentmdp._kernels.mixture import kernels
        from latentmdp._kernels.rollout import play_episodes, sum_returns
        from latentmdp.engines.cuda import episodes, passes

        versions: dict[Any, Callable[..., Any]] = {
            play_episodes: episodes.play_episodes,
            sum_returns: episodes.sum_returns,
            posteriors: episodes.posteriors,
            kernels: passes.EpisodePass,
        }
        return versions.get(work)

    def run(self, work: Callable[..., R], total: int, size: int, *common: Any) -> list[R]:
        """What `work` does to the items of range(total), in pieces that fit into memory."""
        version = self.version_of(work)
        if version is None:
            raise DeviceError(
                f'device="cuda" has no version of `{work.__name__}`: functions of the history, and '
                'worlds that are no models, are played with device="cpu"'
            )
        return list(version(total, self.threads, *common))
