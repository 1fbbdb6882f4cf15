"""Where work runs: threads of this process, a Dask cluster, or a GPU; no result depends on it."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from latentmdp.engines.base import Engine
    from latentmdp.engines.cuda import Cuda
    from latentmdp.engines.dask import Dask
    from latentmdp.engines.threads import Threads

if TYPE_CHECKING:  # for other parts of the library
    from latentmdp.engines.base import as_engine, total, tree_sum, tree_total
    from latentmdp.engines.threads import blocks, one_thread, run_blocks, thread_count
else:
    from latentmdp._util.lazy import lazy_names

    __getattr__, __dir__, __all__ = lazy_names(__name__)
