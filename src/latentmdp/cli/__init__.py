"""The command line. Thin: parse, call the library, print.

A command is a function; those of one part of `latentmdp --help` stand in one file of `commands/`,
and `app` lists them in the order of help. Command modules import the library as
`import latentmdp as lm`, whose names load when first used, so help costs no compiled code.
"""

__all__ = ["main"]


def main() -> None:
    """Run the command line; the entry point of the script `latentmdp`."""
    from latentmdp.cli.app import app

    app()
