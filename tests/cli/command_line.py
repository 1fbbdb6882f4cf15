"""Run a command as a user does; imported by the tests of commands."""

import json

from typer.testing import CliRunner

from latentmdp.cli.app import app

runner = CliRunner()


def run(*arguments, code=0):
    """The result of a command that must end with this exit code."""
    result = runner.invoke(app, [str(a) for a in arguments])
    assert result.exit_code == code, result.output
    return result


def run_json(*arguments):
    """What a command prints for machines."""
    return json.loads(run(*arguments, "--json").stdout)
