"""What a check is and what it finds."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from enum import Enum

from orchestrator.advice.doctor.facts import Facts


class Health(Enum):
    """Say how it stands: fine, likely to hurt, wrong, or not known. What is not known is not wrong."""

    OK = "ok"
    WARN = "warn"
    BAD = "bad"
    UNKNOWN = "unknown"


class Group(Enum):
    """Name what a check is about; the value is its heading."""

    COMPUTER = "This computer"
    FILE = "Deployment file"
    LOCAL = "Local cloud"
    GOOGLE = "Google Cloud"


@dataclass(frozen=True)
class Answer:
    """Hold how it stands, what was seen, and for what is not fine what to do."""

    health: Health
    text: str
    fix: str = ""


def ok(text: str) -> Answer:
    """Return the answer that nothing is wrong."""
    return Answer(Health.OK, text)


def warn(text: str, fix: str) -> Answer:
    """Return the answer that something is likely to hurt."""
    return Answer(Health.WARN, text, fix)


def bad(text: str, fix: str) -> Answer:
    """Return the answer that something is wrong."""
    return Answer(Health.BAD, text, fix)


def unknown(text: str, fix: str) -> Answer:
    """Return the answer that nobody could tell; *fix* may be empty where the cause is another finding's."""
    return Answer(Health.UNKNOWN, text, fix)


@dataclass(frozen=True)
class Finding:
    """Hold what one check found."""

    check: str
    group: Group
    health: Health
    text: str
    fix: str = ""

    def as_dict(self) -> dict[str, str]:
        """Return the finding as `--json` prints it."""
        return {**asdict(self), "group": self.group.value, "health": self.health.value}


Look = Callable[[Facts], Answer]


@dataclass(frozen=True)
class Check:
    """Tie a stable *id* to the function that looks; its docstring is the manual."""

    id: str
    group: Group
    look: Look

    def __call__(self, facts: Facts) -> Finding:
        """Return what the check finds."""
        answer = self.look(facts)
        return Finding(self.id, self.group, answer.health, answer.text, answer.fix)


def check(name: str, group: Group) -> Callable[[Look], Check]:
    """Make a check of the function below."""
    return lambda look: Check(name, group, look)
