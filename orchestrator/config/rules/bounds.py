"""Define the rules for numbers whose bounds stand beside their fields."""

from collections.abc import Iterator

from orchestrator.config.rules.rule import SettingFinding, SettingRule
from orchestrator.config.setting_types import Setting, settings
from orchestrator.domain.bounds import Bounds
from orchestrator.domain.catalog import Catalog
from orchestrator.domain.spec import Spec


def _rule(setting: Setting, bounds: Bounds) -> SettingRule:
    def find(spec: Spec, _: Catalog) -> Iterator[SettingFinding]:
        number = _number(spec, setting)
        if number is not None and not bounds.hold(number):
            yield SettingFinding(setting.dotted_name, f"{number} {bounds.says}", bounds.hint)

    return SettingRule((setting.dotted_name,), find)


def _number(spec: Spec, setting: Setting) -> int | None:
    """Return the value of a setting; None if the section above it is left out, by the word none."""
    value: object = spec
    for part in setting.path:
        value = getattr(value, part, None)
    return value if isinstance(value, int) else None


RULES = tuple(_rule(one, one.bounds) for one in settings().values() if one.bounds)
