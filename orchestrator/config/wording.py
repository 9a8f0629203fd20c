"""Word pydantic's refusals in our own terms."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.config.setting_types import Setting, SettingPath, dotted, keys_in, settings
from orchestrator.domain.text.suggest import did_you_mean, join

_EXPECTED = {
    "tuple": "a list",
    "string": "text",
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "finite": "a number",
}

_EXAMPLES = {
    "tuple": "[a, b]",
    "string": '"text"',
    "bool": "true",
    "int": "20",
    "float": "2.5",
    "finite": "2.5",
}


@dataclass(frozen=True)
class Wording:
    """Message and hint; *unknown* marks a superfluous key, *missing* an absent one."""

    message: str
    hint: str = ""
    unknown: bool = False
    missing: bool = False


def reword(entry: Mapping[str, Any], path: SettingPath) -> Wording:
    """Return the wording for one entry of pydantic's `ValidationError.errors()`."""
    kind, value = str(entry["type"]), entry.get("input")
    setting = settings().get(dotted(tuple(part for part in path if isinstance(part, str))))
    if kind == "unexpected_keyword_argument":
        return _stray(path)
    if kind == "missing":
        return Wording("is required", _example(setting), missing=True)
    if kind == "value_error":
        return Wording(f"{shown(value)} is not a time", str(entry["ctx"]["error"]))
    if setting is None or (setting.mapped and path[-1] != setting.name):
        return Wording(f"expected text, got {shown(value)}", _quoted(value))
    if value is None:
        return Wording("has no value", _example(setting))
    return _wrong(setting, kind, value)


def _wrong(setting: Setting, kind: str, value: Any) -> Wording:
    if setting.section or setting.mapped:
        return _no_section(setting, value)
    if setting.dotted_name == "tpu.type" and isinstance(value, list):
        return Wording("expected one type or a list of them", "name the other types in one place only")
    if kind == "literal_error":
        return _no_word(setting, value)
    expected = next((text for start, text in _EXPECTED.items() if kind.startswith(start)), "something else")
    hint = f"write [{value}]" if kind == "tuple_type" and isinstance(value, str) else ""
    if kind == "string_type":
        hint = _quoted(value)
    example = next((text for start, text in _EXAMPLES.items() if kind.startswith(start)), "")
    return Wording(
        f"expected {expected}, got {shown(value)}",
        hint or (f"for example {setting.name}: {example}" if example else ""),
    )


def _stray(path: SettingPath) -> Wording:
    section, key = dotted(path[:-1]), str(path[-1])
    near = did_you_mean(key, keys_in(section)) or _elsewhere(key)
    known = f"the keys here are {join(keys_in(section), 'and')}"
    return Wording("unknown key", near or known, unknown=True)


def _elsewhere(key: str) -> str:
    """Return the section to which a key of this name belongs, in words; empty if none has it."""
    homes = [setting.dotted_name for setting in settings().values() if setting.name == key]
    return f"it belongs at {join(homes)}" if homes else ""


def _no_section(setting: Setting, value: Any) -> Wording:
    words = f"{join(setting.words)} or " if setting.words else ""
    if isinstance(value, str) and setting.words and did_you_mean(value, setting.words):
        return Wording(f"expected {words}settings, got {shown(value)}", did_you_mean(value, setting.words))
    if not setting.section:
        # The words of a mapping are its names, not another form of its value.
        named = f", where NAME is one of {join(setting.words)}" if setting.words else ""
        return Wording(f"expected settings, got {shown(value)}", f"write NAME: value{named}")
    below = f"write {keys_in(setting.dotted_name)[0]}: and so on, indented below"
    return Wording(f"expected {words}settings, got {shown(value)}", below)


def _no_word(setting: Setting, value: Any) -> Wording:
    near = did_you_mean(value, setting.words) if isinstance(value, str) else ""
    return Wording(f"unknown value {shown(value)}", near or f"choose one of {join(setting.words)}")


def _quoted(value: Any) -> str:
    plain = isinstance(value, bool | int | float)
    return f'put it in quotes: "{json.dumps(value)}"' if plain else ""


def _example(setting: Setting | None) -> str:
    examples = {
        "name": "name: my-model",
        "tpu": "write the section tpu: with type: and zones:",
        "tpu.type": "type: v5litepod-4",
        "tpu.zones": "zones: [europe-west4-b]",
        "job": "write the section job: with command:",
        "job.command": "command: python3 train.py",
        "vm": "write vm: none, or settings below it",
    }
    found = examples.get(setting.dotted_name, "") if setting else ""
    return found if found.startswith("write") or not found else f"for example {found}"


def shown(value: Any) -> str:
    """Return a value as in the file, cut at 60 characters."""
    # As JSON, so that control characters of the file do not reach the terminal.
    return json.dumps(value, ensure_ascii=False, default=str)[:60]
