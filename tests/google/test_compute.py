"""The compute clients come without the hundred services that nobody asked for."""

import subprocess
import sys

CODE = """
import sys
from orchestrator.google.lean_imports import client_class

def services():
    found = (name.split(".") for name in sys.modules if name.startswith("google.cloud.compute_v1.services."))
    return {parts[4] for parts in found}

mine = client_class("instances", "InstancesClient")
import google.cloud.compute_v1
assert services() == {"instances", "zone_operations"}  # one polls the other
assert google.cloud.compute_v1.types.Instance is google.cloud.compute_v1.Instance
assert google.cloud.compute_v1.InstancesClient is mine
assert {"zones", "disks"} < services()
assert not hasattr(google.cloud.compute_v1, "nothing")
assert client_class("zones", "ZonesClient") is google.cloud.compute_v1.ZonesClient
"""


def test_a_client_is_imported_alone_and_others_still_find_the_whole_package():
    """It is the class of Google's package, whose other names are imported when somebody asks for them."""
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
