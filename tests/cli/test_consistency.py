"""Every command alike: an example that parses, the shared options, errors without tracebacks."""

import json
import re
import shlex
from pathlib import Path

import pytest
import typer
from command_line import runner

from latentmdp.cli.app import COMMANDS, app
from latentmdp.cli.catalogue import KINDS

LONG = {"learn", "lucrl", "solve", "fit", "plan", "simulate", "reproduce"}
ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
GROUP = typer.main.get_command(app)


def parameters(command):
    return {option: p for p in GROUP.commands[command].params for option in p.opts}


@pytest.mark.parametrize("command", COMMANDS)
def test_the_shared_options_read_alike(command):
    found = parameters(command)
    for name, flag in (("--json", True), ("--quiet", True), ("--debug", True)):
        assert found[name].is_flag is flag
        assert found[name].default is False
    assert ("--config" in found) == (command in LONG)
    for option, parameter in found.items():
        if not option.startswith("-"):
            continue
        assert parameter.help, f"{command} {option} says nothing of itself"
        assert "_" not in option
    if "--seed" in found:
        assert found["--seed"].default == 0


@pytest.mark.parametrize("command", COMMANDS)
def test_the_example_of_the_help_parses(command):
    example = re.search(r"Example: `latentmdp ([^`]+)`", GROUP.commands[command].help)[1]
    name, *rest = shlex.split(example)
    assert name == command
    known = parameters(command)
    for word in rest:
        if word.startswith("--") and not GROUP.commands[command].context_settings.get(
            "ignore_unknown_options"
        ):
            assert word in known, f"{command}: {word}"


def commands_in(page):
    """Every `latentmdp ...` line of the shell blocks of a page, without its comment."""
    for block in re.findall(r"^```sh\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL):
        for line in block.splitlines():
            words = shlex.split(line, comments=True)
            if words[:1] == ["latentmdp"]:
                yield words[1:]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_in_the_documents_exist(page):
    for command, *rest in commands_in(page):
        if command.startswith("--"):
            continue
        assert command in COMMANDS, command
        more = GROUP.commands[command].context_settings.get("ignore_unknown_options")
        for word in rest:
            assert not word.startswith("--") or more or word in parameters(command), word


def test_flags_take_no_value_in_help():
    for words in ([], ["fit"], ["explorer"]):
        text = runner.invoke(app, [*words, "--help"]).output
        assert "--help" in text
        assert "bool" not in text


@pytest.mark.parametrize("command", COMMANDS)
def test_unknown_options_end_with_code_2(command):
    result = runner.invoke(app, [command, "--certainly-not-an-option"])
    assert result.exit_code == 2
    assert "Traceback" not in result.output


@pytest.mark.parametrize("command", COMMANDS)
def test_a_fault_within_ends_with_code_1_and_no_traceback(command, monkeypatch, tmp_path):
    """The screen is made where a body begins, so its failure stands for any in the body."""
    from latentmdp.cli import screen

    def fails(*_):
        raise RuntimeError("out of luck")

    monkeypatch.setattr(screen, "Screen", fails)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file.npz").write_bytes(b"x")
    arguments = []
    for parameter in GROUP.commands[command].params:
        if parameter.required:
            named = parameter.param_type_name == "option"
            arguments += [parameter.opts[0], "file.npz"] if named else ["file.npz"]
    result = runner.invoke(app, [command, *arguments])
    assert result.exit_code == 1
    assert result.stderr == "error: unexpected RuntimeError: out of luck (--debug shows where)\n"
    debugged = runner.invoke(app, [command, *arguments, "--debug"])
    assert isinstance(debugged.exception, RuntimeError)


@pytest.mark.parametrize("kind", KINDS)
def test_list_names_what_there_is(kind):
    found = json.loads(runner.invoke(app, ["list", kind, "--json"]).stdout)
    assert list(found) == [kind]
    assert all(found[kind].values()), "everything says what it is"
