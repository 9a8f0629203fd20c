"""The reference, made from the program: docs/commands.md, the man page, and the settings in docs/tpuctl-yaml.md."""

import re

import click

from orchestrator import __version__
from orchestrator.cli.main import COMMANDS, cli
from orchestrator.cli.options import SharedOption
from orchestrator.config.schema import describe, json_schema
from orchestrator.config.setting_types import settings
from orchestrator.error_codes import CODES

MARKDOWN_HEAD = """# Commands

This page is made from the commands themselves. `tpuctl COMMAND --help` shows the same.
Exit codes: see [errors.md](errors.md). A flag wins over `TPUCTL_` variables, these over the file.
"""
NAMES = {"help_option_names": ["-h", "--help"]}
EXITS = {
    0: "fine", 1: "failed", 2: "wrong file or flag", 3: "credentials or permission", 4: "capacity or quota",
    5: "something is left", 6: "another tpuctl is at work", 7: "budget or time is used up",
    130: "interrupted",
}  # fmt: skip


def commands():
    """Yield (words, command) for each command and those below it, in the order of the help."""
    for name in COMMANDS:
        found = cli.get_command(click.Context(cli), name)
        yield from _below((name,), found)


def _below(words, command):
    yield words, command
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            yield from _below((*words, name), command.get_command(click.Context(command), name))


def usage(words, command):
    """Return the line that shows how the command is written."""
    context = click.Context(command, info_name=" ".join(("tpuctl", *words)), **NAMES)
    return " ".join((context.info_name, *command.collect_usage_pieces(context)))


def options(command):
    """Yield (how it is written, what it does) for each option."""
    context = click.Context(command, **NAMES)
    # Its own first, as the help shows them.
    for parameter in sorted(command.get_params(context), key=lambda one: isinstance(one, SharedOption)):
        record = parameter.get_help_record(context)
        if record is not None and record[1] and "--help" not in parameter.opts:
            yield record


def text_of(command, term="{}", between="; "):
    """Return the help's paragraphs; a block of columns becomes a list of terms and meanings."""
    parts = [part for part in re.split(r"\n\s*\n", command.help or "") if part.strip()]
    return [_list(part, term, between) if "\b" in part else " ".join(part.split()) for part in parts]


def _list(block, term, between):
    """Return a block of lines with pairs of columns as a list."""
    cells = [cell for cell in re.split(r"\s{2,}|\n", block.replace("\b", "")) if cell]
    return between.join(f"{term.format(name)}: {text}" for name, text in zip(*[iter(cells)] * 2, strict=True))


def markdown():
    """Return docs/commands.md."""
    parts = [MARKDOWN_HEAD]
    for words, command in commands():
        text = "\n\n".join(text_of(command, "- `{}`", "\n"))
        parts.append(f"\n## {' '.join(words)}\n\n`{usage(words, command)}`\n\n{text}")
        rows = "\n".join(
            f"| `{name.replace('|', chr(92) + '|')}` | {_cell(text)} |" for name, text in options(command)
        )
        parts.append(f"\n\n| option | meaning |\n| --- | --- |\n{rows}\n" if rows else "\n")
    return "".join(parts)


SETTINGS_HEAD = """# tpuctl.yaml

All settings of the deployment file, made from its [JSON Schema](tpuctl.schema.json). Only `name`, `tpu.type`,
`tpu.zones` and `job.command` are required. `tpuctl init` writes a file with those of a first job,
`tpuctl init --all-settings` with every one; `tpuctl config` shows each value and where it comes from.

A value can be given for one run: `--set tpu.spot=false`, or the variable `TPUCTL_TPU__SPOT=false`. An option wins
over a variable, a variable over the file. Times are written with a unit: `30s`, `15m`, `6h`, `7d`.
"""


def settings_page():
    """Return docs/tpuctl-yaml.md: every setting in prose, a chapter for each section of the file."""
    known, schema = settings(), json_schema()
    sections = {key: [] for key, one in known.items() if one.section}
    top = [key for key, one in known.items() if "." not in key and not one.section]
    for key, one in known.items():
        if "." in key and not one.section:
            sections[key.rpartition(".")[0]].append(key)
    parts = [SETTINGS_HEAD, "\n## The deployment\n", *(_setting(key, known[key], schema) for key in top)]
    for section, keys in sections.items():
        parts.append(f"\n## {section}\n\n{describe(section)}{_instead(known[section])}\n")
        parts += [_setting(key, known[key], schema) for key in keys]
    return "".join(parts)


def _instead(section):
    return (
        f" Instead of the section: {' or '.join(f'`{word}`' for word in section.words)}."
        if section.words
        else ""
    )


def _setting(key, setting, schema):
    """Return a setting's paragraph: name, kind of value, default, what it does, limits."""
    place = schema_part(schema, key)
    facts = [f"`{_kind(setting, place)}`", "required" if setting.required else _default(setting)]
    least, most = place.get("minimum"), place.get("maximum")
    facts += [f"{least} to {most}" if most else f"at least {least}"] if least else []
    return f"\n### `{key}`\n\n{', '.join(facts)}\n\n{describe(key)}\n"


def _kind(setting, place):
    if setting.words:
        return " | ".join(setting.words)
    if setting.mapped:
        return "mapping"
    if setting.listed:
        return "list"
    kinds = [one for one in (place, *place.get("anyOf", ())) if one.get("type", "null") != "null"]
    if any("enum" in one for one in kinds):
        return "name from a list, which editors complete"
    found = dict.fromkeys(
        {"string": "text", "integer": "whole number"}.get(k["type"], k["type"]) for k in kinds
    )
    if any("d]$" in one.get("pattern", "") for one in kinds):
        return "time"
    return " or ".join(found)


def _default(setting):
    if setting.default is None or setting.default in ("", (), {}):
        return "optional"
    return (
        f"default `{str(setting.default).lower() if isinstance(setting.default, bool) else setting.default}`"
    )


def schema_part(schema, key):
    """Return the part of the schema that describes a setting."""
    place = schema
    for part in key.split("."):
        for kind in (place, *place.get("anyOf", ())):
            if "$ref" in kind:
                place = schema["$defs"][kind["$ref"].rsplit("/", 1)[-1]]
        place = place["properties"][part]
    return place


def _cell(text):
    return " ".join(text.split()).replace("|", "\\|")


def man():
    """Return the man page in roff, section 1."""
    lines = [f'.TH TPUCTL 1 "" "tpuctl {__version__}" "User Commands"', ".SH NAME",
             r"tpuctl \- turn a training script into a finished model on preemptible Cloud TPUs",
             ".SH SYNOPSIS", r".B tpuctl", r".I COMMAND", r"[\fIoptions\fR]",
             ".SH DESCRIPTION", *map(roff, text_of(cli)[:1]), ".SH COMMANDS"]  # fmt: skip
    for words, command in commands():
        lines += [f".SS {roff(usage(words, command))}", *(roff(text) for text in text_of(command))]
        for name, text in options(command):
            lines += [".TP", rf"\fB{roff(name)}\fR", roff(" ".join(text.split()))]
    lines += [".SH EXIT STATUS"]
    for number, text in EXITS.items():
        lines += [".TP", rf"\fB{number}\fR", text]
    lines += [".SH FILES", ".TP", r"\fItpuctl.yaml\fR", "The deployment file, here or in a folder above."]
    return "\n".join(lines) + "\n"


def roff(text):
    """Return *text* safe for roff: backslashes, hyphens that are typed, a dot or quote at the start."""
    safe = text.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + safe if safe[:1] in {".", "'"} else safe


def exit_codes():
    """Return the exit codes that errors can have."""
    return {kind.exit_code for kind, _ in CODES.values()} | {0, 130}
