"""Derive the settings of a deployment file from the dataclasses of the Spec."""

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from orchestrator.domain.bounds import Bounds
from orchestrator.domain.spec import Spec

SettingPath = tuple[str | int, ...]
"""A place in the file: keys of mappings and indexes of lists."""


@dataclass(frozen=True)
class Setting:
    """
    One setting; *default* is MISSING if it is required, *section* has the keys below it.

    *bounds* are those of a number, if it has any.
    """

    path: tuple[str, ...]
    type: Any
    default: Any
    section: Any = None
    bounds: Bounds | None = None

    @property
    def dotted_name(self) -> str:
        """Return the dotted name by which people and `--set` call it."""
        return dotted(self.path)

    @property
    def name(self) -> str:
        """Return the last part of the path."""
        return self.path[-1]

    @property
    def required(self) -> bool:
        """Return whether the file must have the key."""
        return self.default is MISSING

    @property
    def optional(self) -> bool:
        """Return whether the value may be null."""
        return NoneType in get_args(self.type)

    @property
    def words(self) -> tuple[str, ...]:
        """Return the words that the key accepts; empty if any text is allowed."""
        kinds = (self.type, *get_args(self.type))
        return tuple(word for kind in kinds if get_origin(kind) is Literal for word in get_args(kind))

    @property
    def listed(self) -> bool:
        """Return whether the value is a list."""
        return get_origin(self.type) is tuple

    @property
    def mapped(self) -> bool:
        """Return whether the value is a mapping with free names."""
        return get_origin(self.type) is Mapping


@cache
def settings() -> Mapping[str, Setting]:
    """Return every setting by its dotted name, sections before their keys."""
    return {setting.dotted_name: setting for setting in _walk(Spec, ())}


def keys_in(section: str) -> tuple[str, ...]:
    """Return the names of the keys directly in a section; an empty text means the whole file."""
    return tuple(one.name for one in settings().values() if dotted(one.path[:-1]) == section)


def path_of(setting: str) -> tuple[str, ...]:
    """Return the path of a setting by its dotted name, which holds nothing that a user chose."""
    return tuple(setting.split("."))


def at(setting: str, *below: str | int) -> SettingPath:
    """Return the path of what is *below* a setting: an item's index, or a name that the user chose."""
    return (*path_of(setting), *below)


def dotted(path: SettingPath) -> str:
    """Return a path for people: `tpu.zones[0]`."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".")


def _walk(cls: Any, above: tuple[str, ...]) -> Iterator[Setting]:
    hints, annotated = get_type_hints(cls), get_type_hints(cls, include_extras=True)
    for field in fields(cls):
        hint = hints[field.name]
        # The keys of a mapping are the user's, so there are no settings below it.
        kinds = (hint, *(() if get_origin(hint) is dict else get_args(hint)))
        section = next((kind for kind in kinds if isinstance(kind, type) and is_dataclass(kind)), None)
        default = field.default if field.default_factory is MISSING else field.default_factory()
        more = getattr(annotated[field.name], "__metadata__", ())
        bounds = next((one for one in more if isinstance(one, Bounds)), None)
        yield Setting((*above, field.name), hints[field.name], default, section, bounds)
        if section:
            yield from _walk(section, (*above, field.name))
