"""Report everything that is wrong with a deployment file at once."""

from dataclasses import dataclass

from orchestrator.config.setting_types import SettingPath, dotted
from orchestrator.domain.level import Level
from orchestrator.errors import UsageError


def flag_for(key: str) -> str:
    """Return the flag that sets a setting, without its value."""
    return f"--set {key}"


@dataclass(frozen=True)
class FileFinding:
    """
    One mistake, which stops: where, what, and what to do.

    *file* is the file, or the flag or variable that set the value; then *line* is 0. *line* and *col* count
    from 1; *setting_path* is the path of the setting, with the index of an item.
    """

    file: str
    line: int
    col: int
    setting_path: SettingPath
    message: str
    hint: str = ""

    @property
    def setting(self) -> str:
        """Return the setting for people, such as `tpu.zones[0]`."""
        return dotted(self.setting_path)

    def as_dict(self) -> dict[str, object]:
        """Return the finding in its `--json` form."""
        return {
            "level": Level.STOP.value, "file": self.file, "line": self.line, "col": self.col,
            "setting": self.setting, "message": self.message, "hint": self.hint,
        }  # fmt: skip

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}:{self.col}" if self.line else self.file
        # The flag already shows which setting it is.
        setting = "" if self.file == flag_for(self.setting) else self.setting
        text = ": ".join(part for part in (place, setting, self.message) if part)
        return f"{text}; {self.hint}" if self.hint else text


class ConfigError(UsageError):
    """Refuse a deployment file with all findings about it."""

    code = "TPU-110"

    def __init__(self, findings: tuple[FileFinding, ...]) -> None:
        super().__init__(
            # All at once, so that one correction of the file is enough.
            "\n".join(str(finding) for finding in findings),
            hint="correct this, then run: tpuctl plan",
            changed="nothing was changed",
        )
        self.findings = findings

    def as_dict(self) -> dict[str, object]:
        """Return the error in its `--json` form, with a list of the findings."""
        return {**super().as_dict(), "findings": [finding.as_dict() for finding in self.findings]}
