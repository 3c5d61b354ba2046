"""Every command, from click."""

from collections.abc import Iterator
from typing import Final

import click

from gantline.cli.main import main
from scripts.docs import markdown
from scripts.docs.markdown import code, table

INTRODUCTION: Final = """\
Every command with its arguments and options, as `--help` shows them. What they have in common
(which store is used, output, exit codes) is described in [the command line](../command-line.md)."""


def page() -> str:
    parts = [INTRODUCTION, "## gantline", "These options can stand before or after any command."]
    parts.append(_options(main))
    for words, command in commands():
        level = "##" if len(words) == 1 else "###"
        parts += [f"{level} gantline {' '.join(words)}", _described(words, command)]
    return markdown.page("The command line, command by command", *parts)


def commands() -> list[tuple[tuple[str, ...], click.Command]]:
    """Every command that is shown, by the words after `gantline`."""
    return list(_commands(main, ()))


def _commands(
    group: click.Group, words: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    for name, command in sorted(group.commands.items()):
        if not command.hidden:
            yield (*words, name), command
            if isinstance(command, click.Group):
                yield from _commands(command, (*words, name))


def _described(words: tuple[str, ...], command: click.Command) -> str:
    help_text = "\n".join(line.strip() for line in (command.help or "").strip().splitlines())
    if isinstance(command, click.Group):
        return help_text
    context = click.Context(command, info_name=" ".join(("gantline", *words)))
    usage = " ".join(command.collect_usage_pieces(context))
    parts = [help_text, f"```text\n{context.info_name} {usage}\n```", _options(command)]
    return "\n\n".join(part for part in parts if part)


def _options(command: click.Command) -> str:
    rows = [
        [", ".join(code(name) for name in _names(option)), _kind(option), _about(option)]
        for option in command.params
        if isinstance(option, click.Option) and not option.hidden
    ]
    return table(["option", "takes", ""], rows) if rows else ""


def _names(option: click.Option) -> list[str]:
    if option.secondary_opts:
        return [f"{option.opts[-1]} / {option.secondary_opts[-1]}"]
    return list(option.opts)


def _kind(option: click.Option) -> str:
    if option.is_flag:
        return ""
    if isinstance(option.type, click.Choice):
        return " or ".join(code(one) for one in option.type.choices)
    return option.type.name.replace("_", " ")


def _about(option: click.Option) -> str:
    about = option.help or ""
    if option.multiple:
        about += " Can be given several times."
    if option.required:
        about += " Needed."
    if option.show_default and option.default is not None and not option.is_flag:
        about += f" Default: {code(option.default)}."
    return about
