"""The experiments of the paper, one package each; see `latentmdp.experiments.runner`."""

from latentmdp.experiments.runner import Claim, Findings, Outputs, Setting, reproduce, run_sweep

__all__ = ["Claim", "Findings", "Outputs", "Setting", "reproduce", "run_sweep"]
