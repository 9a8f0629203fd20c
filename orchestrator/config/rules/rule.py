"""Define the parts of the rules for the deployment file."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from orchestrator.config.setting_types import Path, at, dotted
from orchestrator.domain.catalog import Catalog
from orchestrator.domain.level import Level
from orchestrator.domain.spec import Spec


@dataclass(frozen=True)
class RuleFinding:
    """
    Say what is wrong with a *setting*, how bad it is and what to do.

    The setting is given by its name, or a part of it by its path, as in `at("tpu.zones", 0)`.
    """

    setting: str | Path
    message: str
    hint: str = ""
    level: Level = Level.STOP

    @property
    def path(self) -> Path:
        """Return the path in the file."""
        return at(self.setting) if isinstance(self.setting, str) else self.setting

    @property
    def key(self) -> str:
        """Return the setting for people, such as `tpu.zones[0]`."""
        return dotted(self.path)


@dataclass(frozen=True)
class SettingRule:
    """Tie a check to the settings that it *reads*, so that it is skipped if one of them is broken."""

    reads: tuple[str, ...]
    find: Callable[[Spec, Catalog], Iterator[RuleFinding]]

    def hindered_by(self, broken: Path) -> bool:
        """Return whether this rule reads the *broken* setting, one below it, or the list that it is an item of."""
        return any(
            (bool(broken) and read[: len(broken)] == broken)
            or (broken[: len(read)] == read and isinstance(broken[len(read)], int))
            for read in map(at, self.reads)
        )
