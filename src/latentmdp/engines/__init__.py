"""Where work runs: threads of this process, a Dask cluster, or a GPU; no result depends on it."""

from latentmdp.engines.base import Engine, as_engine, total, tree_sum
from latentmdp.engines.cuda import Cuda
from latentmdp.engines.dask import Dask
from latentmdp.engines.threads import Threads, blocks, one_thread, run_blocks, thread_count

__all__ = [
    "Cuda",
    "Dask",
    "Engine",
    "Threads",
    "as_engine",
    "blocks",
    "one_thread",
    "run_blocks",
    "thread_count",
    "total",
    "tree_sum",
]
