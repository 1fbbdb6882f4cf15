"""A sweep that needs no time, in a module of its own: a worker process imports it by name.

The test modules themselves cannot be imported by name everywhere: pytest calls them
`tests.experiments...`, and an installed package may bring a `tests` of its own.
"""

import numpy as np

from latentmdp.experiments import Setting


def settings(n=3, scale=1):
    return [Setting(f"toy/{i}", {"seed": i, "scale": scale}) for i in range(n)]


def squares(setting):
    return {"x": np.arange(3), "y": setting["scale"] * np.arange(3.0) ** setting["seed"]}
