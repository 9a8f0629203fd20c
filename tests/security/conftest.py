"""What several tests of machines that write to the bucket begin with."""

import pytest

from tests.kit.cloud import VirtualCloud
from tests.kit.user import User


@pytest.fixture
def user(tmp_path):
    """Give a computer whose deployment is up."""
    with VirtualCloud(tmp_path).open() as cloud:
        one = User(cloud, job__target_steps=400)
        one.up()
        yield one
