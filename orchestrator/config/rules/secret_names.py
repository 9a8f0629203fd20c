"""
Define the rules for secrets: the deployment file names them and never contains them.

No message of this module repeats a value, because a misplaced value may be the secret itself.
"""

import re
from collections.abc import Iterator

from orchestrator.config.rules.job import RESERVED, VARIABLE_PATTERN
from orchestrator.config.rules.rule import SettingFinding, SettingRule
from orchestrator.config.setting_types import at
from orchestrator.contract.secrets.redaction import shapes_in
from orchestrator.domain.catalog import Catalog
from orchestrator.domain.source.secret_refs import reference
from orchestrator.domain.spec import Spec

_HOW = "write secret://NAME, and store the value with: tpuctl secret set NAME"


def _secrets(spec: Spec, _: Catalog) -> Iterator[SettingFinding]:
    for name, text in spec.job.secrets.items():
        path = at("job.secrets", name)
        if not re.fullmatch(VARIABLE_PATTERN, name):
            yield SettingFinding(
                path, "is not a name for an environment variable", "use letters, digits and '_'"
            )
        elif name.startswith("TPUCTL_") or name in RESERVED:
            yield SettingFinding(path, "is set by tpuctl itself", "choose another name")
        if reference(text) is None:
            yield SettingFinding(path, "is not a reference to a secret; its value is not shown here", _HOW)


def _once(spec: Spec, _: Catalog) -> Iterator[SettingFinding]:
    for name in spec.job.secrets:
        if name in spec.job.env:
            yield SettingFinding(at("job.secrets", name), "is in job.env too", "remove it there")


def _written(spec: Spec, _: Catalog) -> Iterator[SettingFinding]:
    """Refuse values that look like a token."""
    places = {at("job.command"): spec.job.command, at("job.setup"): spec.job.setup}
    places |= {at("job.env", name): text for name, text in spec.job.env.items()}
    for path, text in places.items():
        # Only unambiguous shapes, because a false refusal would keep a job from starting.
        for shape in shapes_in(text, sure_only=True):
            message = (
                f"contains what looks like {shape}, and goes into the machine's metadata, which many can read"
            )
            yield SettingFinding(path, message, "put it into job.secrets: " + _HOW)


RULES = (
    SettingRule(("job.secrets",), _secrets),
    SettingRule(("job.secrets", "job.env"), _once),
    SettingRule(("job.command", "job.setup", "job.env"), _written),
)
