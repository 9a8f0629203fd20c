"""Disks of Compute Engine as values."""

from dataclasses import dataclass, field


@dataclass
class Disk:
    """Record a persistent disk; *user* is the name of the VM that has it, or empty."""

    zone: str
    name: str
    numeric_id: int
    size_gib: int
    type: str
    image: str
    created: float
    user: str = ""
    labels: dict[str, str] = field(default_factory=dict)
