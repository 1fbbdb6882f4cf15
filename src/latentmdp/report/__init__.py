"""Pictures and pages about models, policies and runs.

The names are imported when first used, so that a command that only prints loads no plotting.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from latentmdp.report.plans import plot_bounds
    from latentmdp.report.report import write_report

__all__ = ["plot_bounds", "write_report"]


def __getattr__(name: str) -> Any:
    if name == "plot_bounds":
        from latentmdp.report.plans import plot_bounds

        return plot_bounds
    if name == "write_report":
        from latentmdp.report.report import write_report

        return write_report
    raise AttributeError(f"module 'latentmdp.report' has no attribute {name!r}")
