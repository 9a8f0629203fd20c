import pytest
from orchestrator.engine import down
@pytest.fixture(autouse=True)
def off(monkeypatch): monkeypatch.setattr(down.Sweep,"_on_their_way",lambda self: ())
from tests.engine.test_down import test_down_waits_for_an_order_that_is_still_running
from tests.engine.conftest import *
