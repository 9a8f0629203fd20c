"""What a rule is and what it finds."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum

from orchestrator.advice.preflight.facts import SourceFacts
from orchestrator.domain.catalog import Catalog
from orchestrator.domain.spec import Spec


class Level(Enum):
    """Say how bad it is: good to know, likely to hurt, or not to be started like this."""

    NOTE = "note"
    WARN = "warn"
    STOP = "stop"


@dataclass(frozen=True)
class Finding:
    """Say which *rule* found what (*message*, with its number), *where* (a setting or file:line), and the *fix*."""

    rule: str
    level: Level
    where: str
    message: str
    fix: str

    def as_dict(self) -> dict[str, str]:
        """Return the finding as `--json` prints it."""
        return {
            "rule": self.rule,
            "level": self.level.value,
            "where": self.where,
            "message": self.message,
            "fix": self.fix,
        }


@dataclass(frozen=True)
class Hit:
    """Hold what a rule saw. *level* is the rule's first one when left out."""

    where: str
    message: str
    fix: str
    level: Level | None = None


Look = Callable[[Spec, Catalog, SourceFacts], Iterator[Hit]]


@dataclass(frozen=True)
class Rule:
    """Tie a stable *id* and the possible *levels* to the function that looks; its docstring is the manual."""

    id: str
    levels: tuple[Level, ...]
    look: Look

    def __call__(self, spec: Spec, catalog: Catalog, facts: SourceFacts) -> tuple[Finding, ...]:
        """Return what the rule finds, in the order of the source."""
        hits = dict.fromkeys(self.look(spec, catalog, facts))
        return tuple(
            Finding(self.id, hit.level or self.levels[0], hit.where, hit.message, hit.fix) for hit in hits
        )


def rule(name: str, *levels: Level) -> Callable[[Look], Rule]:
    """Make a rule of the function below."""
    return lambda look: Rule(name, levels, look)
