"""Where work runs: threads of this process. Results do not depend on how many there are."""

from latentmdp.engines.threads import Team, blocks, run_blocks, thread_count

__all__ = ["Team", "blocks", "run_blocks", "thread_count"]
