"""
Plain values to a Spec, or to every complaint about them.

pydantic finds what has the wrong type. What it refused is then replaced by a stand-in, so that the
rules of `config.rules` can look at all the rest in the same run.
"""

from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import Any

from orchestrator.config.adapter import checked
from orchestrator.config.complaints import Complaint
from orchestrator.config.document import Document, Mark
from orchestrator.config.rules.every_rule import check
from orchestrator.config.setting_types import Path, dotted, keys_in, settings
from orchestrator.config.shipped_catalog import load_catalog
from orchestrator.config.wording import Wording, reword
from orchestrator.domain.spec import FLEET_COMMAND, Spec
from orchestrator.domain.suggest import closest

_NAME = "[key]"  # pydantic's last part of the place of a name in a mapping
# Valid together: rules that compare two settings must not complain about a stand-in.
_STAND_INS: Mapping[str, Any] = {
    "name": "stand-in",
    "tpu.type": "v2-8",
    "tpu.zones": ["us-central1-b"],
    "job.command": "true",
}
_START = Mark((1, 1), (1, 1))


def validate(document: Document, origins: Mapping[Path, str]) -> tuple[Spec | None, tuple[Complaint, ...]]:
    """Return the Spec and no complaint, or None and all of them, in the order of their places."""
    data = _with_types(_without_empty_sections(document.data))
    spec, refused = _try(data)
    complaints = list(document.complaints)
    # A key that is there itself is not what a mistyped one beside it means.
    given = {dotted(path) for path in document.marks}
    strange = [path for path, wording in refused.items() if wording.unknown]
    meant = {key for path in strange for key in _meant(path)} - given
    broken = meant | {dotted(path) for path in refused}
    for path, wording in refused.items():
        # A mistyped required key is one mistake, not a stray and a missing one.
        if not (wording.missing and dotted(path) in meant):
            complaints.append(_complaint(document, origins, path, wording))
    if refused:
        # Once more without what was refused, so that rules about the other settings speak in the same run.
        spec, _ = _try(_mended(data, refused))
    for problem in check(spec, load_catalog(), broken) if spec else ():
        # Warnings are shown by `plan`; they make no file wrong.
        if problem.fatal:
            path = _path(problem.key, document.marks)
            complaints.append(_complaint(document, origins, path, Wording(problem.message, problem.hint)))
    # What has no line comes last: flags and variables are nowhere in the file.
    complaints.sort(key=lambda c: (c.line == 0, c.line, c.col))
    return (None if complaints else spec), tuple(complaints)


def _try(data: Mapping[str, Any]) -> tuple[Spec | None, dict[Path, Wording]]:
    """Validate once; return the Spec, or what was refused, by path."""
    spec, errors = checked(data)
    found: dict[Path, Wording] = {}
    for entry in errors:
        path = _real_path(entry["loc"], data)
        if path is not None:
            # One complaint for a place: pydantic reports each alternative that fails.
            found.setdefault(path, reword(entry, path))
    return spec, found


def _without_empty_sections(data: Mapping[str, Any]) -> dict[str, Any]:
    """Treat a section whose keys are all commented out as one with defaults; `vm` must say which it is."""
    clean: dict[str, Any] = deepcopy(dict(data))
    for key, setting in settings().items():
        *parents, name = key.split(".")
        place: Any = clean
        for parent in parents:
            place = place.get(parent) if isinstance(place, dict) else None
        empty = isinstance(place, dict) and name in place and place[name] is None
        if empty and not setting.words and (setting.section or setting.mapped):
            place[name] = {}
    return clean


def _with_types(data: dict[str, Any]) -> dict[str, Any]:
    """
    Write the short form `type: [A, B]` out, and the job of a file that describes a fleet.

    A list beside other_types is left to be complained about.
    """
    tpu = data.get("tpu")
    types = tpu.get("type") if isinstance(tpu, dict) else None
    if isinstance(tpu, dict) and isinstance(types, list) and types and "other_types" not in tpu:
        tpu["type"], tpu["other_types"] = types[0], types[1:]
    if "fleet" in data:
        data.setdefault("job", {"command": FLEET_COMMAND})
    return data


def _real_path(loc: Iterable[str | int], data: Any) -> Path | None:
    """Drop the names of alternatives that pydantic puts into a path; None for the alternative not meant."""
    path: list[str | int] = []
    place = data
    for part in loc:
        setting = settings().get(dotted(tuple(path)))
        if setting and setting.section and setting.words and part not in keys_in(setting.key):
            # The error of the alternative's word counts only if there is no section.
            if part == setting.section.__name__:
                continue
            return None if isinstance(place, dict) else tuple(path)
        if setting and not setting.section and not setting.mapped and isinstance(part, str):
            break  # A plain value with alternatives, such as a time or `auto`: it holds no parts of its own.
        path.append(part)
        place = _below(place, part)
    return tuple(path)


def _below(place: Any, part: str | int) -> Any:
    try:
        return place[part]
    except (KeyError, IndexError, TypeError):
        return None


def _mended(data: Mapping[str, Any], refused: Mapping[Path, Wording]) -> dict[str, Any]:
    """Return a copy where stand-ins or defaults replace what was refused."""
    copy: dict[str, Any] = deepcopy(dict(data))
    # A name that a mapping may not have takes its value with it.
    places = {path[:-1] if path[-1] == _NAME else path for path in refused}
    # The deepest first: removing a section would take away the place of what is refused inside it.
    for path in sorted(places, key=len, reverse=True):
        place: Any = copy
        for part in path[:-1]:
            place = _below(place, part)
        if isinstance(place, list):
            place[int(path[-1])] = ""
        elif isinstance(place, dict):
            place.pop(path[-1], None)
    for key, value in _STAND_INS.items():
        section, _, name = key.rpartition(".")
        place = copy.setdefault(section, {}) if section else copy
        if isinstance(place, dict):
            place.setdefault(name, value)
    return copy


def _meant(path: Path) -> set[str]:
    """Return the keys that an unknown key may mean: their values are not known either."""
    section = dotted(path[:-1])
    return {dotted((*path[:-1], name)) for name in closest(str(path[-1]), keys_in(section))}


def _complaint(document: Document, origins: Mapping[Path, str], path: Path, wording: Wording) -> Complaint:
    for length in range(len(path), 0, -1):
        if path[:length] in origins:
            return Complaint(origins[path[:length]], 0, 0, dotted(path), wording.message, wording.hint)
    line, col = _place(document.marks, path, of_key=wording.unknown)
    return Complaint(document.name, line, col, dotted(path), wording.message, wording.hint)


def _place(marks: Mapping[Path, Mark], path: Path, *, of_key: bool) -> tuple[int, int]:
    """Return the place of a value; of its key; or, for what is not in the file, of the nearest parent's key."""
    if path in marks:
        return marks[path].key if of_key else marks[path].value
    for length in range(len(path) - 1, 0, -1):
        if path[:length] in marks:
            return marks[path[:length]].key
    return _START.key


def _path(key: str, marks: Mapping[Path, Mark]) -> Path:
    """Return the path of a dotted key of a rule; names of environment variables may hold dots themselves."""
    return next((path for path in marks if dotted(path) == key), tuple(key.split(".")))
