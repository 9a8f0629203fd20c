"""The local cloud, started with what its machines get of this computer."""

from typing import TYPE_CHECKING

from orchestrator.emulator import control
from orchestrator.emulator.machines.host_settings import Tools
from orchestrator.scripts import uv_program

if TYPE_CHECKING:
    from orchestrator.emulator.address import Address
    from orchestrator.emulator.start_options import Options


def ensure_running(options: "Options | None" = None) -> "tuple[Address, bool]":
    """Return the running local cloud and whether it was started now; *options* count at a start only."""
    return control.ensure_running(options, _tools)


def _tools() -> Tools:
    return Tools(uv_program.shared_folder(), uv_program.any_program() or "")
