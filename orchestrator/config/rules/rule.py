"""What the rules of the deployment file are made of."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from orchestrator.domain.catalog import Catalog
from orchestrator.domain.spec import Spec


@dataclass(frozen=True)
class Problem:
    """Say what is wrong with the setting *key* and what to do. A problem that is not *fatal* is a warning."""

    key: str
    message: str
    hint: str = ""
    fatal: bool = True


@dataclass(frozen=True)
class SettingRule:
    """Tie a check to all settings that it *reads*, so that it is left out where one of them is broken already."""

    reads: tuple[str, ...]
    find: Callable[[Spec, Catalog], Iterator[Problem]]

    def hindered_by(self, broken: str) -> bool:
        """Say whether the *broken* key, its section or one of its items is read by this rule."""
        # With the bracket and the dot: `tpu.type` must not be hindered by a broken `tpu.types_of_mine`.
        return any(
            read == broken or read.startswith(f"{broken}.") or broken.startswith(f"{read}[")
            for read in self.reads
        )
