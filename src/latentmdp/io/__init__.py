"""Files: `save(obj, path)` and `load(path)`, the format chosen by the suffix.

| suffix     | holds          | form                                                        |
|------------|----------------|-------------------------------------------------------------|
| `.npz`     | any kind       | NumPy arrays and a JSON header, compressed                  |
| `.json`    | models         | human-readable, floats exact                                |
| `.parquet` | logs           | a long table, one row per step (see `latentmdp.io.parquet`) |
| `.pomdp`   | models         | Cassandra's flat POMDP, for other solvers                   |
| `.pomdpx`  | models         | POMDPX, the factored form, for other solvers                |

Every file names its format, its kind and its schema version. A file is written beside its
destination and moved into place, so a reader never sees half of one. Loading checks every declared
size before it allocates and never executes code: no pickle is read or written.
"""

from latentmdp._util.lock import LockedError
from latentmdp.io.export import export
from latentmdp.io.files import check_target, load, save
from latentmdp.io.kinds import Kind, register

__all__ = ["Kind", "LockedError", "check_target", "export", "load", "register", "save"]
