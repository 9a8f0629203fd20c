"""What several tests of machines that write to the bucket begin with."""

import pytest

from tests.scenarios.desk import Desk
from tests.scenarios.town import Town


@pytest.fixture
def desk(tmp_path):
    """Give a computer whose deployment is up."""
    with Town(tmp_path).open() as town:
        one = Desk(town, job__target_steps=400)
        one.up()
        yield one
