"""Work on the workers of a Dask cluster: one machine, SSH, Kubernetes or SLURM, as Dask deploys it.

Tasks carry the paths of files, not their contents: logs and the scratch folder must lie where every
worker can read them. A worker that dies has its tasks run again elsewhere, by Dask; one that joins
late gets the tasks that wait. A task uses one thread, so a worker with as many threads as its
machine has cores uses all of them. Dask's dashboard shows what runs where.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from latentmdp._version import __version__
from latentmdp.engines.base import in_order
from latentmdp.engines.threads import Threads, one_thread
from latentmdp.errors import EngineError

T = TypeVar("T")
R = TypeVar("R")

_TASKS_PER_THREAD = 8
"""Tasks that each thread of the cluster gets in one pass, about: enough that a slow worker is
waited for briefly, few enough that the scheduler, at a millisecond a task, is not."""


class Dask:
    """Work on a Dask cluster.

    Parameters
    ----------
    client : distributed.Client or str
        A client, or the address of a scheduler such as `tcp://10.0.0.1:8786`.
    scratch
        Folder for temporary files that all workers can read and write; by default that of the
        system, which only workers on this machine share.
    timeout
        Seconds after which a scheduler that does not answer is given up.

    Raises
    ------
    EngineError
        No scheduler answers, or a worker runs another version of latentmdp.
    """

    local = False

    def __init__(
        self, client: Any, *, scratch: str | os.PathLike[str] | None = None, timeout: float = 10.0
    ) -> None:
        self.scratch = None if scratch is None else Path(scratch)
        self.client = _connected(client, timeout) if isinstance(client, str) else client
        if not hasattr(self.client, "submit") or not hasattr(self.client, "scheduler_info"):
            raise TypeError(
                "client must be a distributed.Client or the address of a scheduler, got "
                f"{type(client).__name__}"
            )
        if not self._workers():
            warnings.warn(
                f"the scheduler at {self.client.scheduler.address} has no worker yet: work waits "
                "until one joins",
                stacklevel=2,
            )

    def __repr__(self) -> str:
        return f"Dask({self.client.scheduler.address!r})"

    @property
    def threads(self) -> int:
        """Threads of all workers together, at least one."""
        return max(1, sum(int(worker["nthreads"]) for worker in self._workers()))

    def _workers(self) -> list[dict[str, Any]]:
        return list(self.client.scheduler_info(n_workers=-1)["workers"].values())

    def run_length(self, items: int) -> int:
        """The largest power of two that leaves every thread its share of tasks."""
        share = max(1, items // (_TASKS_PER_THREAD * self.threads))
        return 1 << (share.bit_length() - 1)

    @property
    def within(self) -> Threads:
        """One thread of a worker."""
        return Threads(1)

    def version_of(self, work: Callable[..., Any]) -> Callable[..., Any] | None:
        """None: workers run the loops of the CPU."""
        return None

    def map(self, function: Callable[..., R], items: Iterable[T], *common: Any) -> Iterator[R]:
        """`function(item, *common)` of every item, in their order."""
        shared = self._shared(common)
        futures = (self._submitted(function, item, shared) for item in items)
        ahead = 2 * _TASKS_PER_THREAD * self.threads
        return in_order(futures, ahead, self._result, self._cancel)

    def finished(
        self, function: Callable[..., R], items: Iterable[T], *common: Any
    ) -> Iterator[tuple[int, R]]:
        """The results in the order in which they are done, each with its item's number."""
        from distributed import as_completed

        shared = self._shared(common)
        futures = [self._submitted(function, item, shared) for item in items]
        number = {future.key: i for i, future in enumerate(futures)}
        try:
            for future in as_completed(futures, loop=self.client.loop):
                yield number[future.key], self._result(future)
        finally:
            self._cancel(future for future in futures if not future.done())

    def _shared(self, common: tuple[Any, ...]) -> Any:
        """What all tasks take, as a task of its own: another worker can make it again."""
        return self.client.submit(_same, common, pure=False) if common else ()

    def _submitted(self, function: Callable[..., Any], item: Any, shared: Any) -> Any:
        return self.client.submit(_run, __version__, function, item, shared, pure=False)

    def _cancel(self, futures: Iterable[Any]) -> None:
        """Cancel tasks, if there still is a scheduler."""
        with suppress(OSError, TimeoutError):
            self.client.cancel(list(futures))

    def _result(self, future: Any) -> Any:
        try:
            return future.result()
        except (OSError, EngineError) as error:
            if type(error).__name__ == "CommClosedError":
                raise EngineError(
                    f"the scheduler at {self.client.scheduler.address} went away: {error}"
                ) from error
            if isinstance(error, FileNotFoundError):
                raise EngineError(
                    f"a worker does not find {error.filename}: logs and the scratch folder must "
                    "lie, and stay, where every worker can read them: Dask(..., scratch=FOLDER) or "
                    "TMPDIR=FOLDER before a command"
                ) from error
            raise
        except Exception as error:
            if type(error).__name__ in ("KilledWorker", "CancelledError", "FutureCancelledError"):
                raise EngineError(f"the cluster lost a task: {error}") from error
            raise


def _connected(address: str, timeout: float) -> Any:
    try:
        from distributed import Client
        from distributed.comm.addressing import parse_address, parse_host_port
    except ImportError:
        raise EngineError(
            "engines.Dask needs dask and distributed: pip install 'latentmdp[cluster]'"
        ) from None
    try:
        protocol, location = parse_address(address)
        if protocol in ("tcp", "tls"):
            parse_host_port(location)  # a client that cannot be made is not closed without noise
        return Client(address, timeout=timeout, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        raise EngineError(f"no Dask scheduler answers at {address}: {error}") from None


def _same(value: Any) -> Any:
    return value


def _run(version: str, function: Callable[..., Any], item: Any, common: tuple[Any, ...]) -> Any:
    """One task, on a worker of the same version."""
    if version != __version__:
        from distributed import get_worker

        raise EngineError(
            f"worker {get_worker().address} runs latentmdp {__version__}, but {version} sends it "
            "work: install the same version everywhere"
        )
    with one_thread():
        return function(item, *common)
