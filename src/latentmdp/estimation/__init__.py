"""Learning a latent MDP from logs: maximum likelihood, the number of contexts, clustering."""

from latentmdp.estimation.em import EM
from latentmdp.estimation.initialization import initialize

__all__ = ["EM", "initialize"]
