"""The best policy without memory: branch and bound, a mixed-integer program, coordinate ascent."""

from latentmdp.planning.memoryless.planner import Memoryless

__all__ = ["Memoryless"]
