"""The experiments of the paper, one module each; see `latentmdp.experiments.runner`."""

from latentmdp.experiments.findings import Claim, Findings
from latentmdp.experiments.results import Experiment, read_experiment
from latentmdp.experiments.runner import Outputs, Setting, reproduce, run_sweep

__all__ = [
    "Claim",
    "Experiment",
    "Findings",
    "Outputs",
    "Setting",
    "read_experiment",
    "reproduce",
    "run_sweep",
]
