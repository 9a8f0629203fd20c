"""Define the parts of the rules for the deployment file."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from orchestrator.config.setting_types import SettingPath, at, dotted
from orchestrator.domain.catalog import Catalog
from orchestrator.domain.level import Level
from orchestrator.domain.spec import Spec


@dataclass(frozen=True)
class SettingFinding:
    """
    Say what is wrong with a setting, how bad it is and what to do.

    *where* is the name of the setting, or the path of a part of it, as in `at("tpu.zones", 0)`.
    """

    where: str | SettingPath
    message: str
    hint: str = ""
    level: Level = Level.STOP

    @property
    def setting_path(self) -> SettingPath:
        """Return the path of the setting in the file."""
        return at(self.where) if isinstance(self.where, str) else self.where

    @property
    def setting(self) -> str:
        """Return the setting for people, such as `tpu.zones[0]`."""
        return dotted(self.setting_path)


@dataclass(frozen=True)
class SettingRule:
    """Tie a function that finds to the settings that it *reads*, so that it is skipped if one of them is broken."""

    reads: tuple[str, ...]
    find: Callable[[Spec, Catalog], Iterator[SettingFinding]]

    def hindered_by(self, broken: SettingPath) -> bool:
        """Return whether this rule reads the *broken* setting, one below it, or the list that it is an item of."""
        return any(
            (bool(broken) and read[: len(broken)] == broken)
            or (broken[: len(read)] == read and isinstance(broken[len(read)], int))
            for read in map(at, self.reads)
        )
