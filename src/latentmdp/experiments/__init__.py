"""The experiments of the paper, one module each (`runner`), and the arena of learners (`arena`)."""

from latentmdp.experiments.arena import Arena, compare_learners
from latentmdp.experiments.findings import Claim, Findings
from latentmdp.experiments.results import Experiment, read_experiment
from latentmdp.experiments.runner import Outputs, Setting, reproduce, run_sweep

__all__ = [
    "Arena",
    "Claim",
    "Experiment",
    "Findings",
    "Outputs",
    "Setting",
    "compare_learners",
    "read_experiment",
    "reproduce",
    "run_sweep",
]
