"""`tpuctl local status` before the first start, to which `plan` and `check` lead."""

from orchestrator.emulator.machines.machine_image import IMAGES
from orchestrator.emulator.machines.machine_python import base_interpreter, version_of
from tests.cli.cli_kit import here


def test_local_status_names_the_python_of_machines_before_there_are_any(capsys, monkeypatch, tmp_path):
    """It is the image's where this computer has it, else that of tpuctl."""
    monkeypatch.setenv("TPUCTL_STATE_DIR", str(tmp_path))
    for name in ("PATH", "HOME", "XDG_DATA_HOME", "PYENV_ROOT", "UV_PYTHON_INSTALL_DIR"):
        monkeypatch.setenv(name, str(tmp_path))
    own = version_of(base_interpreter())
    other = {k: "" if i.python == own else f" (Google's image has {i.python})" for k, i in IMAGES.items()}
    _, out, _ = here(capsys, "local", "status")
    assert out.splitlines() == [
        "not running",
        f"tpu machines: tpu-ubuntu2204, Python {own}{other['tpu']}",
        f"vm machines: ubuntu-2404, Python {own}{other['vm']}",
    ]
