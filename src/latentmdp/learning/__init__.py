"""Learning a latent MDP, from logs by likelihood or clustering, or by acting in it."""
