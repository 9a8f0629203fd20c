"""The Python API is what its page promises."""

import inspect
import re
import typing

import pytest

from orchestrator.app import api
from tests.cli.cli_kit import ROOT

PAGE = (ROOT / "docs/python-api.md").read_text()


def methods(kind):
    """Return the methods of a class by name."""
    return {name: one for name, one in vars(kind).items() if callable(one) and not name.startswith("_")}


METHODS = methods(api.Tpuctl)
ALL = [
    pytest.param(one, f".{name}", id=name)
    for k in (api.Tpuctl, api.TpuFleet)
    for name, one in methods(k).items()
]


def written(one, name):
    """Return a call as the page writes it: parameters with their defaults."""
    parts = []
    for parameter in inspect.signature(one).parameters.values():
        if parameter.name == "self":
            continue
        default = "" if parameter.default is parameter.empty else f"={parameter.default!r}".replace("'", '"')
        parts.append(parameter.name + default)
    return f"{name}({', '.join(parts)})"


@pytest.mark.parametrize(("method", "name"), ALL)
def test_each_method_is_on_the_page_and_typed(method, name):
    """With every parameter and default; a new one has its row."""
    assert f"`{written(method, name)}`" in PAGE
    hints = typing.get_type_hints(method)
    assert set(hints) == {*inspect.signature(method).parameters, "return"} - {"self"}


def test_the_page_names_nothing_else():
    """Each row is a name of the API, and each name of it is on the page."""
    rows = re.findall(r"^\| `\.?(\w+)\(", PAGE, re.MULTILINE)
    assert set(rows) == {*METHODS, *methods(api.TpuFleet), "Tpuctl", "TpuFleet", "new_project"}
    assert f"`{written(api.TpuFleet, 'TpuFleet')}`" in PAGE
    assert f"`{written(api.new_project, 'new_project')}`" in PAGE
    assert f"`{written(api.Tpuctl, 'Tpuctl')}`" in PAGE
    assert {name for name in api.__all__ if not re.search(rf"\b{name}\b", PAGE)} == set()
    assert (ROOT / "orchestrator/py.typed").is_file()


def test_the_example_of_the_page_is_python_that_fits():
    """Its calls have parameters that exist."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    for block, kind in zip(blocks, ("tpuctl", "fleet"), strict=True):
        compile(block, "page", "exec")
        used = re.findall(rf"\b{kind}\.(\w+)\b(?!\.)", re.sub(r"import .*", "", block))
        assert used
        assert {*used} <= {*METHODS, *methods(api.TpuFleet), "yaml"}


def test_a_plan_needs_nothing_but_the_file(tmp_path):
    """Offline, in any folder, with settings on top; a wrong file is an error with a code."""
    file = api.new_project(tmp_path / "job", recipe="numpy-lm")
    planned = api.Tpuctl(file, settings={"tpu.spot": False}).plan(offline=True)
    assert any(line.startswith("create TPU") for line in planned.changes)
    assert planned.usd_hour == planned.on_demand_usd_hour
    spot = api.Tpuctl(file).plan(offline=True)
    assert spot.usd_hour < spot.on_demand_usd_hour
    with pytest.raises(api.TpuctlError) as caught:
        api.Tpuctl(tmp_path / "none.yaml").plan(offline=True)
    assert caught.value.code.startswith("TPU-1")
