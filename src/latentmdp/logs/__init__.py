"""Logged episodes: in memory, on disk, and as tables of any library.

`trajectories.py` holds the container, and counts; `on_disk.py` files larger than memory, which
stand in for it; `covariates.py` what is known of individuals. A table becomes logs in two steps:
`frames.py` reads the columns of any table, `long_table.py` makes episodes of rows.
"""

from latentmdp.logs.covariates import Covariates, Encoder, WeightModel
from latentmdp.logs.long_table import END, OPTIONAL, REQUIRED
from latentmdp.logs.on_disk import (
    HELD_STEPS,
    KEY,
    LogFiles,
    in_memory,
    open_logs,
    spread,
    table_arguments,
    write_shard,
    written,
)
from latentmdp.logs.trajectories import (
    BATCH_STEPS,
    NEVER,
    Batch,
    Endings,
    Episode,
    History,
    Lacks,
    Logs,
    MissingCells,
    Sizes,
    Steps,
    Trajectories,
    cell_counts,
    first_state_counts,
    mean_amounts,
    occurring_cells,
    require_in_memory,
    require_logs,
    sizes_of,
)

__all__ = [
    "BATCH_STEPS",
    "END",
    "HELD_STEPS",
    "KEY",
    "NEVER",
    "OPTIONAL",
    "REQUIRED",
    "Batch",
    "Covariates",
    "Encoder",
    "Endings",
    "Episode",
    "History",
    "Lacks",
    "LogFiles",
    "Logs",
    "MissingCells",
    "Sizes",
    "Steps",
    "Trajectories",
    "WeightModel",
    "cell_counts",
    "first_state_counts",
    "in_memory",
    "mean_amounts",
    "occurring_cells",
    "open_logs",
    "require_in_memory",
    "require_logs",
    "sizes_of",
    "spread",
    "table_arguments",
    "write_shard",
    "written",
]
