"""One word for one thing in what programs and people type: keys of `--json`, options, and the values of enums."""

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import click
import pytest

from orchestrator.cli.views.json_shapes import KINDS, schema_of
from tests.cli.reference import NAMES as HELP_OPTION
from tests.cli.reference import commands
from tests.kit.source import nodes
from tests.test_words_in_code import FINE, IN_PACKAGE

pytestmark = pytest.mark.usefixtures("code_read_once")
ROOT = Path(__file__).parents[1]
NAMES = {
    "budget_lasts": "budget_lasts_s",
    "rate_usd": "usd_hour",
    "redone": "steps_redone",
    "seconds": "duration_s, total_s, machine_seconds, node_seconds",
    "size": "bytes",
    "problem": "message",
    "total": "total_s",
    "trouble": "message",
    "why": "message, for a sentence; reason, for a code",
    "unknown": "unpriced",
    "wasted_usd": "preemptions_usd",
    "apart_s": "observed_save_interval_s",
    "every_s": "save_interval_s",
    "cost_from": "save_pause_from",
    "cost_s": "save_pause_s; a cost is money",
    "cost_most_usd": "upper_usd",
    "cost_upper_usd": "upper_usd",
    "cost_usd": "usd",
    "runs_on": "mode",
    "lost": "unsupported, unknown_result; lost_usd is the cost of lost work",
    "lost_steps": "steps_redone",
    "life_s": "time_between_interruptions_s",
    "time_between_losses_s": "time_between_interruptions_s",
    "most": "nodes_max",
    "most_usd": "upper_usd",
    "role": "on",
    "several_hosts": "multi_host",
    "spot_most_usd_chip_hour": "spot_upper_usd_chip_hour",
    "to_ttl_most_usd": "to_ttl_upper_usd",
    "programs_back": "xla_programs_restored",
    "programs_compiled": "xla_programs_compiled",
    "starts": "attempts",
    "total_steps": "reported_target_steps; target_steps is the file's",
    "unused_numbers": "unused_incarnations",
    "watcher_where": "watcher_on",
    "rate": "steps_per_second",
    "files_not_read": "unread_files",
    "limit": "ttl",
    "login": "user",
    "steps_redone_at_least": "steps_redone_is_lower_bound",
    "steps_redone_at_most": "upper_steps_redone",
    "saves_stopped": "save_pauses_s",
    "advice": "hints",
    "you": "hint",
    "missing": "quota_missing, nodes_not_up",
    "next_steps": "next_changes; a step is one of the training",
    "waits": "waits_for",
    "hourly": "price.lines",
    "price_dates": "price.dates",
    "nodes_missing": "quota_missing",
    "ready": "nodes_up; READY is Google's state of a TPU",
}
"""A whole name of a key or an option that has another name now."""
OPTIONS = {
    "adopted": "at-down",
    "folder": "output",
    "out": "output",
}
"""An option that has another name now: --output is the file or folder to write."""
STORED = {
    # Values in the record, the journal, the events and the heartbeats of deployments that exist.
    "orchestrator/domain/first_seen.py": {"left", "stranger"},
    "orchestrator/domain/events.py": {"anew"},
}
"""Values of enums that files hold from before they had a better word."""
FINE_HERE = FINE | {"unchanged"}
"""The result of a `push` that found nothing new."""


MANY_TYPES = {
    "changed": "of an error a sentence; of `fleet hold` and `ssh-config` whether; of `cp` the files",
    "leftovers": "of one deployment with kind and zone; of a fleet by the name of its node",
    "secrets": "`secret list` has those of the project; `plan` where each variable of the job comes from",
    "source": "a path, in `data` and `cp`; who has observed, with the age of that, in `status`",
}
"""Keys that have several types, with what they are; a new key does not join them."""


def keys_in(schema: object, where: str) -> Iterator[tuple[str, str]]:
    """Yield (key, where it is) for each key of a JSON Schema."""
    if isinstance(schema, list):
        for one in schema:
            yield from keys_in(one, where)
    if not isinstance(schema, dict):
        return
    for key, below in schema.get("properties", {}).items():
        yield key, where
        yield from keys_in(below, f"{where}.{key}")
    for part in ("items", "anyOf", "additionalProperties"):
        yield from keys_in(schema.get(part), where)


def old_words(name: str, names: Mapping[str, str] = NAMES) -> dict[str, str]:
    """Return the words of *name* that have another word now, with that word."""
    if name in FINE_HERE:
        return {}
    if name in names:
        return {name: names[name]}
    words = re.split(r"[^a-z0-9]+", name.lower())
    return {word: IN_PACKAGE[word] for word in words if word in IN_PACKAGE}


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_key_of_json_has_the_word_that_the_pages_have(kind: str) -> None:
    """A program is written against these: a second word for a thing is a second thing to its author."""
    found = {
        f"{where}.{key}": bad
        for key, where in keys_in(schema_of(KINDS[kind]), kind)
        if (bad := old_words(key))
    }
    assert found == {}


def test_an_option_has_the_word_that_the_pages_have() -> None:
    """Of all commands, hidden ones too."""
    found = {
        f"{' '.join(words)} {name}": bad
        for words, command in commands()
        # click keeps the option for help that the first context asks for.
        for parameter in command.get_params(click.Context(command, **HELP_OPTION))
        if isinstance(parameter, click.Option)
        for name in (*parameter.opts, *parameter.secondary_opts)
        if (bad := old_words(name.lstrip("-"), {**NAMES, **OPTIONS}))
    }
    assert found == {}


def values_of_enums(path: Path) -> Iterator[str]:
    """Yield the texts that are values of the enums of a module."""
    for node in nodes(path):
        if isinstance(node, ast.ClassDef) and any(ast.unparse(base).endswith("Enum") for base in node.bases):
            for line in node.body:
                if isinstance(line, ast.Assign) and isinstance(line.value, ast.Constant):
                    yield str(line.value.value)


def test_the_value_of_an_enum_has_the_word_that_the_pages_have() -> None:
    """Values are printed by `--json`, typed as choices and stored."""
    found = {
        f"{file}: {value}": bad
        for path in sorted((ROOT / "orchestrator").rglob("*.py"))
        for file in (str(path.relative_to(ROOT)),)
        for value in values_of_enums(path)
        if value not in STORED.get(file, set()) and (bad := old_words(value, {}))
    }
    assert found == {}


def types_in(schema: object) -> Iterator[tuple[str, str]]:
    """Yield (key, JSON type) for each key of a JSON Schema."""
    if isinstance(schema, list):
        for one in schema:
            yield from types_in(one)
    if not isinstance(schema, dict):
        return
    for key, below in schema.get("properties", {}).items():
        shape = below["anyOf"][0] if "anyOf" in below else below
        kind = shape.get("type", "object")  # what has no shape of its own is an object
        yield key, "number" if kind == "integer" else kind
        yield from types_in(below)
    for part in ("items", "anyOf", "additionalProperties"):
        yield from types_in(schema.get(part))


def test_a_key_has_one_type_in_all_documents() -> None:
    """`up` was a yes in one document, a number in the next and a list in a third."""
    types: dict[str, set[str]] = {}
    for shape in KINDS.values():
        for key, kind in types_in(schema_of(shape)):
            types.setdefault(key, set()).add(kind)
    types.pop("value")  # of a setting
    assert {key: kinds for key, kinds in types.items() if len(kinds) > 1}.keys() == MANY_TYPES.keys()


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_time_in_seconds_ends_in_s(kind: str) -> None:
    """But where seconds of several machines are added up: those say whose."""
    keys = {key for key, _ in keys_in(schema_of(KINDS[kind]), kind)}
    added_up = {"machine_seconds", "node_seconds"}
    assert {key for key in keys - added_up if "seconds" in key} == set()
