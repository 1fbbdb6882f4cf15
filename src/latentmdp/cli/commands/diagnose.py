"""`latentmdp diagnose`: which assumptions of the theory hold."""

import math
from typing import Annotated, Any

import typer

import latentmdp as lm
from latentmdp.cli import options
from latentmdp.cli.catalogue import find_policy
from latentmdp.cli.screen import Screen

__all__ = ["command"]


@options.command()
def command(
    screen: Screen,
    file: options.File,
    policy: options.PolicyName = "uniform",
    length: Annotated[
        int, typer.Option("--length", min=1, help="Transitions in a test and in a history.")
    ] = 1,
    episodes: options.Episodes = 4000,
    requirements: Annotated[
        bool,
        typer.Option("--requirements", help="Also measure the numbers of episodes truly needed."),
    ] = False,
    seed: options.Seed = 0,
) -> None:
    """Say which assumptions of the theory a model meets, with numbers and verdicts.

    For logs: coverage, and how many contexts are visible in them.

    Example: `latentmdp diagnose m.npz --requirements`
    """
    found = lm.load(file)
    with screen.progress("measuring"):
        if isinstance(found, lm.LatentMDP):
            diagnosis: Any = lm.diagnose(
                found,
                find_policy(policy, found),
                length,
                seed,
                episodes=episodes,
                requirements=requirements,
            )
        elif isinstance(found, lm.Trajectories):
            diagnosis = lm.diagnose(found, None, length, seed)
        else:
            raise typer.BadParameter(f"{file} holds {type(found).__name__}")
    rows = diagnosis.rows()
    screen.result(file=file, seed=seed, rows=rows, **_fields(diagnosis))
    screen.table(str(file), ("assumption", "number", "verdict"), rows, words=("verdict",))


def _fields(diagnosis: Any) -> dict[str, Any]:
    names = (
        ("delta", "sigma_tau", "sigma_h", "alpha_2", "alpha_3", "connected", "diameter")
        if hasattr(diagnosis, "delta")
        else ("episodes", "steps", "visits", "visible_contexts", "connected")
    )
    return {name: _plain(getattr(diagnosis, name)) for name in names}


def _plain(value: Any) -> Any:
    """Lists and numbers; what JSON cannot hold becomes "inf" or null."""
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else "inf"
    return value
