"""The arena: learners side by side on many tasks, each scored against a certified optimum.

`python -m arena` in the folder `benchmarks` runs it (`__main__`); `tasks` and `games` are what is
played, `comparison` who plays and how that is measured.
"""

from .comparison import LEARNERS, Arena, Cell, Entry, Standard, compare_learners, picture
from .recurrent_ppo import WorldEnv
from .tasks import TASKS, Task

__all__ = [
    "LEARNERS",
    "TASKS",
    "Arena",
    "Cell",
    "Entry",
    "Standard",
    "Task",
    "WorldEnv",
    "compare_learners",
    "picture",
]
