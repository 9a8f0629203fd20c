"""Define what is left after `down`."""

from dataclasses import dataclass

from orchestrator.domain.plan import kind_title


@dataclass(frozen=True)
class Leftover:
    """One resource that still exists, or one kind of resource that could not be listed."""

    kind: str
    name: str
    zone: str
    state: str

    @property
    def title(self) -> str:
        """Return the kind for people."""
        return kind_title(self.kind)

    @property
    def text(self) -> str:
        """Return what is waited for, as `TPU mine-tpu-g1 (DELETING)`, without what is not known of it."""
        return " ".join([*(word for word in (self.title, self.name) if word != "?"), f"({self.state})"])
