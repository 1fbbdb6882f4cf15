"""Seconds to read a million rows with string names from every kind of table.

Rows are shuffled; episodes, states and actions are strings, rewards are 10^6 measured numbers. The
peer, timed in the same run, is what any reader must do at least: pandas sorts the frame by episode
and time and numbers the names.
"""

import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
from timing import best_seconds

import latentmdp as lm

EPISODES, STEPS = 50_000, 20
CALLED = {
    "episode": "household",
    "t": "week",
    "state": "brand",
    "action": "offer",
    "reward": "spent",
    "next_state": "then",
}


def panel() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    n = EPISODES * STEPS
    state, action = rng.integers(12, size=n), rng.integers(3, size=n)
    after = np.append(state[1:], 0)
    after[STEPS - 1 :: STEPS] = rng.integers(12, size=EPISODES)
    brands = np.array([f"brand {i}" for i in range(12)], object)
    columns = {
        "household": np.repeat([f"h{i}" for i in range(EPISODES)], STEPS).astype(object),
        "week": np.tile(np.arange(STEPS), EPISODES),
        "brand": brands[state],
        "offer": np.array(["none", "coupon", "display"], object)[action],
        "spent": rng.normal(size=n),
        "then": brands[after],
    }
    return pd.DataFrame(columns).sample(frac=1.0, random_state=0).reset_index(drop=True)


def main() -> None:
    frame = panel()
    names = ("household", "brand", "offer", "then")
    objects = frame.astype(dict.fromkeys(names, object))
    with tempfile.TemporaryDirectory() as folder:
        csv, parquet = Path(folder) / "panel.csv", Path(folder) / "panel.parquet"
        frame.to_csv(csv, index=False)
        frame.to_parquet(parquet)
        tables = {
            "pandas": frame,
            "pandas, objects": objects,
            "polars": pl.from_pandas(frame),
            "pyarrow": pa.Table.from_pandas(frame),
            "dict of arrays": {name: objects[name].to_numpy() for name in frame},
            "dict of lists": {name: frame[name].tolist() for name in frame},
            "csv": csv,
            "parquet": parquet,
        }

        def peer() -> None:
            ordered = frame.sort_values(["household", "week"])
            for name in names:
                pd.factorize(ordered[name], sort=True)

        def reader(table: object) -> object:
            return lambda: lm.Trajectories.from_table(table, columns=CALLED)

        jobs = {name: reader(table) for name, table in tables.items()}
        seconds = best_seconds({"peer": peer, **jobs})
    for name in tables:
        print(
            f"{name:16s} {seconds[name]:5.2f} s, {seconds[name] / seconds['peer']:.2f} of the peer"
        )


if __name__ == "__main__":
    main()
