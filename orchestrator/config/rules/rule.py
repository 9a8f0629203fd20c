"""Define the parts of the rules for the deployment file."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from orchestrator.domain.catalog import Catalog
from orchestrator.domain.spec import Spec


@dataclass(frozen=True)
class Problem:
    """Describe what is wrong with the setting *key* and what to do; without *fatal* it is a warning."""

    key: str
    message: str
    hint: str = ""
    fatal: bool = True


@dataclass(frozen=True)
class SettingRule:
    """Tie a check to the settings that it *reads*, so that it is skipped if one of them is broken."""

    reads: tuple[str, ...]
    find: Callable[[Spec, Catalog], Iterator[Problem]]

    def hindered_by(self, broken: str) -> bool:
        """Say whether this rule reads the *broken* key, its section or one of its items."""
        # With the bracket and the dot: `tpu.type` must not match a broken `tpu.types_of_mine`.
        return any(
            read == broken or read.startswith(f"{broken}.") or broken.startswith(f"{read}[")
            for read in self.reads
        )
