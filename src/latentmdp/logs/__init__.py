"""Logged episodes: in memory, on disk, and as tables of any library.

| file              | what it holds                                                                |
|-------------------|------------------------------------------------------------------------------|
| `base.py`         | `Logs`, the protocol of logs wherever they lie; batches; what is missing     |
| `trajectories.py` | `Trajectories`, all episodes in memory                                       |
| `on_disk.py`      | `LogFiles`, Parquet files larger than memory, and the header they have       |
| `counts.py`       | how often cells occur, in all of them                                        |
| `covariates.py`   | what is known of individuals, and the weights of contexts it implies         |
| `frames.py`       | the columns of any table: a frame of any library, a mapping, a file          |
| `long_table.py`   | from rows to episodes, and back                                              |
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from latentmdp.logs.base import Batch, Endings, Logs, MissingCells
    from latentmdp.logs.counts import cell_counts, first_state_counts, occurring_cells
    from latentmdp.logs.covariates import Covariates, Encoder, WeightModel
    from latentmdp.logs.on_disk import LogFiles, open_logs
    from latentmdp.logs.trajectories import Episode, History, Steps, Trajectories

if TYPE_CHECKING:
    from latentmdp.logs import frames
    from latentmdp.logs.base import (
        BATCH_STEPS,
        END,
        HELD_STEPS,
        NO_END,
        MissingKinds,
        Sizes,
        Summary,
        listed_logs,
        require_logs,
        sizes_of,
        spread,
    )
    from latentmdp.logs.counts import dense_counts
    from latentmdp.logs.long_table import reward_values_of_counts
    from latentmdp.logs.on_disk import (
        INCOMPLETE,
        KEY,
        known_shard,
        logs_of_arrow,
        to_arrow,
        write_shard,
        written,
    )
    from latentmdp.logs.trajectories import require_trajectories
else:
    from latentmdp._util.lazy import lazy_names

    __getattr__, __dir__, __all__ = lazy_names(__name__)
