"""
Validate plain values: return a Spec, or all findings about them.

pydantic finds values of a wrong type. These are then replaced by stand-ins, so that the rules of
`config.rules` can check all other settings in the same run.
"""

from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import Any

from orchestrator.config.adapter import checked
from orchestrator.config.config_error import FileFinding
from orchestrator.config.document import Document, Mark
from orchestrator.config.rules.every_rule import run_rules
from orchestrator.config.setting_types import SettingPath, dotted, keys_in, settings
from orchestrator.config.shipped_catalog import load_catalog
from orchestrator.config.wording import Wording, reword
from orchestrator.domain.level import Level
from orchestrator.domain.spec import FLEET_COMMAND, Spec
from orchestrator.domain.text.suggest import closest

_NAME = "[key]"  # pydantic's last path element for a mapping's key
# Valid together, so that rules which compare two settings do not complain about a stand-in.
_STAND_INS: Mapping[SettingPath, Any] = {
    ("name",): "stand-in",
    ("tpu", "type"): "v2-8",
    ("tpu", "zones"): ["us-central1-b"],
    ("job", "command"): "true",
}
_START = Mark((1, 1), (1, 1))


def validate(
    document: Document, origins: Mapping[SettingPath, str]
) -> tuple[Spec | None, tuple[FileFinding, ...]]:
    """Return the Spec and no finding, or None and all findings, in the order of their places."""
    data = _with_types(_without_empty_sections(document.data))
    spec, refused = _try(data)
    findings = list(document.findings)
    # A key that exists cannot be what a mistyped one means.
    strange = [path for path, wording in refused.items() if wording.unknown]
    meant = {one for path in strange for one in _meant(path)} - document.marks.keys()
    broken = meant | refused.keys()
    for path, wording in refused.items():
        # A mistyped required key is one mistake: do not also report it as missing.
        if not (wording.missing and path in meant):
            findings.append(_finding_at(document, origins, path, wording))
    if refused:
        # Validate again without the refused values, so that rules about other settings report in the same run.
        spec, _ = _try(_mended(data, refused))
    for finding in run_rules(spec, load_catalog(), broken) if spec else ():
        # Warnings are shown by `plan` and do not make a file invalid.
        if finding.level is Level.STOP:
            wording = Wording(finding.message, finding.hint)
            findings.append(_finding_at(document, origins, finding.setting_path, wording))
    # Findings about flags and variables come last, because they have no line.
    findings.sort(key=lambda c: (c.line == 0, c.line, c.col))
    return (None if findings else spec), tuple(findings)


def _try(data: Mapping[str, Any]) -> tuple[Spec | None, dict[SettingPath, Wording]]:
    """Validate once; return the Spec, or the refused values by path."""
    spec, errors = checked(data)
    found: dict[SettingPath, Wording] = {}
    for entry in errors:
        path = _real_path(entry["loc"], data)
        if path is not None:
            # One finding for a position: pydantic reports each alternative that fails.
            found.setdefault(path, reword(entry, path))
    return spec, found


def _without_empty_sections(data: Mapping[str, Any]) -> dict[str, Any]:
    """Treat a section whose keys are all commented out as one with defaults; `vm` must be explicit."""
    clean: dict[str, Any] = deepcopy(dict(data))
    for setting in settings().values():
        *parents, name = setting.path
        holder: Any = clean
        for parent in parents:
            holder = holder.get(parent) if isinstance(holder, dict) else None
        empty = isinstance(holder, dict) and name in holder and holder[name] is None
        if empty and not setting.words and (setting.section or setting.mapped):
            holder[name] = {}
    return clean


def _with_types(data: dict[str, Any]) -> dict[str, Any]:
    """
    Expand the short form `type: [A, B]`, and add the job of a file that describes a fleet.

    A list beside other_types stays, so that it is reported.
    """
    tpu = data.get("tpu")
    types = tpu.get("type") if isinstance(tpu, dict) else None
    if isinstance(tpu, dict) and isinstance(types, list) and types and "other_types" not in tpu:
        tpu["type"], tpu["other_types"] = types[0], types[1:]
    if "fleet" in data:
        data.setdefault("job", {"command": FLEET_COMMAND})
    return data


def _real_path(loc: Iterable[str | int], data: Any) -> SettingPath | None:
    """Remove the names of alternatives from pydantic's path; return None for an alternative not meant."""
    path: list[str | int] = []
    holder = data
    for part in loc:
        setting = settings().get(dotted(tuple(path)))
        if setting and setting.section and setting.words and part not in keys_in(setting.dotted_name):
            # The error of the word alternative counts only if there is no section.
            if part == setting.section.__name__:
                continue
            return None if isinstance(holder, dict) else tuple(path)
        if setting and not setting.section and not setting.mapped and isinstance(part, str):
            break  # A plain value with alternatives, such as a time or `auto`, has no parts of its own.
        path.append(part)
        holder = _below(holder, part)
    return tuple(path)


def _below(holder: Any, part: str | int) -> Any:
    try:
        return holder[part]
    except (KeyError, IndexError, TypeError):
        return None


def _mended(data: Mapping[str, Any], refused: Mapping[SettingPath, Wording]) -> dict[str, Any]:
    """Return a copy with stand-ins or defaults in place of the refused values."""
    copy: dict[str, Any] = deepcopy(dict(data))
    # An invalid key of a mapping is removed with its value.
    paths = {path[:-1] if path[-1] == _NAME else path for path in refused}
    # Deepest first: removing a section would remove the places inside it.
    for path in sorted(paths, key=len, reverse=True):
        holder: Any = copy
        for part in path[:-1]:
            holder = _below(holder, part)
        if isinstance(holder, list):
            holder[int(path[-1])] = ""
        elif isinstance(holder, dict):
            holder.pop(path[-1], None)
    for (*sections, name), value in _STAND_INS.items():
        holder = copy
        for section in sections:
            holder = holder.setdefault(section, {}) if isinstance(holder, dict) else None
        if isinstance(holder, dict):
            holder.setdefault(name, value)
    return copy


def _meant(path: SettingPath) -> set[SettingPath]:
    """Return the settings that an unknown key may mean, whose values are therefore not known."""
    section = dotted(path[:-1])
    return {(*path[:-1], name) for name in closest(str(path[-1]), keys_in(section))}


def _finding_at(
    document: Document, origins: Mapping[SettingPath, str], path: SettingPath, wording: Wording
) -> FileFinding:
    for length in range(len(path), 0, -1):
        if path[:length] in origins:
            return FileFinding(origins[path[:length]], 0, 0, path, wording.message, wording.hint)
    line, col = _position(document.marks, path, of_key=wording.unknown)
    return FileFinding(document.name, line, col, path, wording.message, wording.hint)


def _position(marks: Mapping[SettingPath, Mark], path: SettingPath, *, of_key: bool) -> tuple[int, int]:
    """Return the position of a value or its key; if it is not in the file, of the nearest parent's key."""
    if path in marks:
        return marks[path].key if of_key else marks[path].value
    for length in range(len(path) - 1, 0, -1):
        if path[:length] in marks:
            return marks[path[:length]].key
    return _START.key
