"""Figure 2 of [kwon2021]: initialisation with a PSR and clustering, over delta and H.

Left to right: how far the belief is from the true context at the end of an episode, the M-th
singular value of P_{T,H}, and the model error of PSR-clustering; and, beyond the paper, the errors
of every initialiser on the same data, with two floors.
"""
