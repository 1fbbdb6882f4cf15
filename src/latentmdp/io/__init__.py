"""Files: `save(obj, path)` and `load(path)`, the format chosen by the suffix.

| suffix     | holds      | form                                                                  |
|------------|------------|-----------------------------------------------------------------------|
| `.npz`     | any kind   | NumPy arrays and a JSON header, compressed                            |
| `.json`    | models,    | human-readable, floats exact; a session refers to the file of its     |
|            | sessions   | policy (see `latentmdp.io.session_file`)                              |
| `.parquet` | logs, runs | one row per step or per episode (see `latentmdp.io.parquet`)          |
| `.csv`     | models     | one row per possible outcome (see `latentmdp.io.csv_table`); tables   |
|            |            | of logs are read too                                                  |
| `.pomdp`   | models     | Cassandra's flat POMDP, from and for other solvers                    |
| `.pomdpx`  | models     | POMDPX, the factored form, from and for other solvers                 |
| `.txt`     | models     | multi-environment POMDPs, to read (see `latentmdp.io.environments`)   |
| `.prism`,  | models     | of model checkers, to read (see `latentmdp.io.storm`); .jani, .drn,   |
| ...        |            | .umb, and folders of them                                             |

Every file names its format, its kind and its schema version; archives and runs carry a digest of
their contents too. A file is written beside its destination and moved into place, so a reader never
sees half of one. Loading checks every declared size before it allocates and never executes code: no
pickle is read or written. The kinds are listed in `latentmdp.io.kinds`.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from latentmdp._util.storage import LockedError
    from latentmdp.io.files import check_target, export, load, load_as, save
    from latentmdp.io.kinds import Kind, register
else:
    from latentmdp._util.lazy import lazy_names

    __getattr__, __dir__, __all__ = lazy_names(__name__)
