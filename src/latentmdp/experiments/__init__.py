"""The experiments of the paper, one module each, and the sweeps that run them (`runner`)."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from latentmdp.experiments.findings import Claim, Findings
    from latentmdp.experiments.runner import (
        Experiment,
        Outputs,
        Setting,
        read_experiment,
        reproduce,
        run_sweep,
    )

if TYPE_CHECKING:  # for other parts of the library
    from latentmdp.experiments.findings import Panel, draw_panel
else:
    from latentmdp._util.lazy import lazy_names

    __getattr__, __dir__, __all__ = lazy_names(__name__)
