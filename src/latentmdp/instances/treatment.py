"""Treatment of a chronic disease under several plausible models of its progression.

The setting of multi-model MDPs [steimle2021]: a clinician sees the stage of the disease each
quarter and chooses among watching, a standard drug and an intensive therapy. Four progression
models are plausible for a patient and none can be measured; they differ in how fast the disease
worsens untreated and in what each therapy does. The intensive therapy helps most patients, burdens
all, and harms the frail. The reward is a good quarter as the patient reports it (1) or not (0).

Stages are "remission", "mild", "moderate", "severe" and "lost" (death or loss of function,
absorbing). In a quarter the stage worsens by one with probability w, improves by one with
probability i, else stays; from "mild" on, w grows by half from stage to stage. The numbers are
chosen to be plausible, not fitted to any cohort.
"""

import numpy as np

from latentmdp.instances.registry import register
from latentmdp.model import LatentMDP

# The probability of a good quarter at each stage, and what is left of it under each action.
STAGES = {"remission": 0.95, "mild": 0.85, "moderate": 0.60, "severe": 0.25, "lost": 0.0}
ACTIONS = {"watch": 1.0, "standard drug": 0.93, "intensive therapy": 0.75}

# How common a kind of patient is, and by action (w, i) per quarter from the mild stage: the
# probabilities to worsen and to improve.
PATIENTS = {
    "slow": (0.40, ((0.06, 0.06), (0.03, 0.20), (0.02, 0.25))),
    "fast, responsive": (0.25, ((0.25, 0.02), (0.08, 0.25), (0.04, 0.40))),
    "drug-resistant": (0.20, ((0.20, 0.02), (0.19, 0.04), (0.06, 0.35))),
    "frail": (0.15, ((0.12, 0.05), (0.06, 0.22), (0.28, 0.08))),
}


@register("treatment")
def treatment(*, horizon: int = 20) -> LatentMDP:
    """Treat a chronic disease whose progression model is unknown: watch, a drug, or a hard therapy.

    Parameters
    ----------
    horizon
        H, in quarters: five years by default.

    Notes
    -----
    M = 4, S = 5, A = 3, binary rewards, weights (.40, .25, .20, .15), start in the mild stage.
    Separation: 0, since the absorbing state looks the same in all contexts; between 0.03 and 1.2
    elsewhere. The best therapy depends on the context, which shows only slowly, so it is here for
    planning with certificates on a problem an analyst would recognise.
    """
    M, S = len(PATIENTS), len(STAGES)
    T = np.zeros((M, S, len(ACTIONS), S))
    for m, (_, therapies) in enumerate(PATIENTS.values()):
        for a, (worsen, improve) in enumerate(therapies):
            for s in range(S - 1):
                down = worsen * 1.5 ** (s - 1)
                up = improve if s > 0 else 0.0
                T[m, s, a, s + 1] = down
                T[m, s, a, s - 1 if s > 0 else s] += up
                T[m, s, a, s] += 1.0 - down - up
    T[:, S - 1, :, S - 1] = 1.0
    means = np.multiply.outer(list(STAGES.values()), list(ACTIONS.values()))
    return LatentMDP(
        T,
        np.tile(means, (M, 1, 1)),
        initial=list(STAGES).index("mild"),
        weights=[weight for weight, _ in PATIENTS.values()],
        horizon=horizon,
        context_names=tuple(PATIENTS),
        state_names=tuple(STAGES),
        action_names=tuple(ACTIONS),
    )
