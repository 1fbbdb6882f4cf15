"""`latentmdp plan`: find a policy for a model, with the bounds the planner can prove."""

from pathlib import Path
from typing import Annotated

import typer

import latentmdp as lm
from latentmdp.cli import options
from latentmdp.cli.choices import planner
from latentmdp.cli.extra import parse_extra
from latentmdp.cli.screen import session

__all__ = ["command"]


def command(
    context: typer.Context,
    model: options.ModelFile,
    method: options.Method = "qmdp",
    out: Annotated[Path | None, typer.Option("--out", help="Save the policy here (.npz).")] = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Find a policy for a model and report the bounds the planner proves.

    Options that the command does not know are handed on to the planner.

    Example: `latentmdp plan m.npz --method qmdp --out policy.npz`
    """
    with session(as_json, quiet, debug) as screen:
        if out is not None:
            options.check_target(lm.AlphaVectorPolicy, out)
        chosen = planner(method, **parse_extra(context.args))
        world = options.load_model(model)
        with screen.progress() as progress:
            progress.add_task(f"planning with {method}", total=None)
            plan = chosen.plan(world)
        if out is not None:
            lm.save(plan.policy, out)
        facts = {
            "method": method,
            "lower": plan.lower,
            "upper": plan.upper,
            "converged": plan.converged,
            "iterations": plan.n_iter,
            "seconds": plan.seconds,
        }
        screen.result(model=str(model), out=None if out is None else str(out), **facts)
        unknown = "not computed (see: latentmdp evaluate)"
        shown = {
            k: unknown if v is None else f"{v:.6g}" if isinstance(v, float) else str(v)
            for k, v in facts.items()
        }
        screen.facts(f"plan for {model}", shown)
