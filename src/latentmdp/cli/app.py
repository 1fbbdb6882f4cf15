"""The typer application: one entry per command."""

from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

_GROUPS = {
    "Start here": ("demo", "list", "make"),
    "Plan with known models": ("plan", "compare", "evaluate"),
    "Understand a policy": ("explain", "explorer", "report"),
    "Learn from logs": ("solve", "fit", "simulate"),
    "Learn by acting": ("learn", "lucrl"),
    "Files and assumptions": ("info", "convert", "diagnose"),
    "The paper": ("reproduce",),
}
COMMANDS = {
    name: import_module(f"latentmdp.cli.commands.{name.replace('-', '_')}")
    for group in _GROUPS.values()
    for name in group
}
"""Commands in the order help shows them, by the name of their module, and the modules."""
_PANELS = {name: panel for panel, group in _GROUPS.items() for name in group}


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
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show it."),
    ] = False,
) -> None:
    """Plan, learn and act when one of several hidden MDPs is in force."""


for _name, _module in COMMANDS.items():
    # A command that asks for the context hands options it does not know on to others from there.
    _more = typer.Context in _module.command.__annotations__.values()
    app.command(
        _name,
        cls=_Command,
        rich_help_panel=_PANELS[_name],
        context_settings={"allow_extra_args": _more, "ignore_unknown_options": _more},
    )(_module.command)
