"""Pictures and pages about models, policies and runs.

The names are imported when first used, so that a command that only prints loads no plotting.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from latentmdp.report.decision_page import write_decision_page
    from latentmdp.report.decisions import DecisionTable, decision_table
    from latentmdp.report.explanations import plot_explanation, plot_policy_graph
    from latentmdp.report.explorer import write_explorer
    from latentmdp.report.plans import plot_bounds
    from latentmdp.report.report import write_report

__all__ = [
    "DecisionTable",
    "decision_table",
    "plot_bounds",
    "plot_explanation",
    "plot_policy_graph",
    "write_decision_page",
    "write_explorer",
    "write_report",
]

_HOMES = {
    "DecisionTable": "decisions",
    "decision_table": "decisions",
    "plot_bounds": "plans",
    "plot_explanation": "explanations",
    "plot_policy_graph": "explanations",
    "write_decision_page": "decision_page",
    "write_explorer": "explorer",
    "write_report": "report",
}
"""Public names, and the module each comes from."""


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"latentmdp.report.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'latentmdp.report' has no attribute {name!r}")
