"""The typer application: one entry per command."""

from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from latentmdp.cli.commands import acting, files, known_models, logs, paper, reading, start

_GROUPS = {
    "Start here": (start.demo, start.list_, start.make),
    "Plan with known models": (known_models.plan, known_models.compare, known_models.evaluate),
    "Understand a policy": (reading.explain, reading.explorer, reading.report),
    "Learn from logs": (logs.solve, logs.fit, logs.simulate),
    "Learn by acting": (acting.learn, acting.lucrl),
    "Files and assumptions": (files.info, files.convert, files.diagnose),
    "The paper": (paper.reproduce,),
}
COMMANDS = [body.__name__.strip("_") for group in _GROUPS.values() for body in group]
"""In the order in which help shows them."""


class _PlainFlags:
    """Help that shows no <bool> beside a flag, as if it took a value."""

    def get_params(self, ctx: Any) -> list[Any]:
        options: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for option in options:
            if getattr(option, "is_flag", False):
                option.metavar = " "
        return options


class _Command(_PlainFlags, TyperCommand):
    """One command."""


class _Group(_PlainFlags, TyperGroup):
    """All commands."""


app = typer.Typer(
    name="latentmdp",
    cls=_Group,
    help="Plan, learn and act when one of several hidden MDPs is in force.",
    epilog="Start with: latentmdp demo",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(asked_for: bool) -> None:
    if asked_for:
        from latentmdp._version import __version__

        typer.echo(f"latentmdp {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show it.")
    ] = False,
) -> None:
    """Plan, learn and act when one of several hidden MDPs is in force."""


for _panel, _group in _GROUPS.items():
    for _body in _group:
        # A command that asks for the context hands on options that it does not know.
        _more = typer.Context in _body.__annotations__.values()
        app.command(
            _body.__name__.strip("_"),
            cls=_Command,
            rich_help_panel=_panel,
            context_settings={"allow_extra_args": _more, "ignore_unknown_options": _more},
        )(_body)
