"""Roles on a bucket count some time after they were given, and some time after they were taken."""

import pytest

from orchestrator.clock import VirtualClock
from orchestrator.emulator.start_options import Options
from orchestrator.emulator.state.cloud_settings import PROFILES
from orchestrator.emulator.state.storage.blobs import MemoryBlobs
from orchestrator.emulator.state.storage.bucket_policy import check_access
from orchestrator.emulator.state.storage.refusals import StorageError
from orchestrator.emulator.state.storage.service import Storage

VIEWER, USER = "roles/storage.objectViewer", "roles/storage.objectUser"
DELAY = 120.0


class Project:
    """A bucket, its policy, and an account that would read."""

    def __init__(self):
        self.clock, self.blobs = VirtualClock(), MemoryBlobs()
        self.start()
        self.storage.buckets.create("p", {"name": "bucket", "location": "eu"})

    def start(self):
        """Begin on the same blobs, as after a restart."""
        self.storage = Storage(self.clock, self.blobs, policy_delay=DELAY)

    def grant(self, *roles):
        """Let the policy be these roles of the account."""
        bindings = [{"role": role, "members": ["serviceAccount:a@b"]} for role in roles]
        self.storage.buckets.set_policy("bucket", {"bindings": bindings})

    def may(self, permission="storage.objects.get", who="a@b"):
        """Return whether an account has a permission now."""
        bucket = self.storage.buckets.get("bucket")
        try:
            check_access(bucket, self.storage.buckets.in_force(bucket), who, permission, "x")
        except StorageError as refused:
            return refused.status != 403
        return True


def test_a_role_counts_some_time_after_it_was_given():
    """Until then its account is refused; an account that the policy does not name is no business of it."""
    project = Project()
    project.grant(VIEWER)
    assert (project.may(), project.may(who="c@d")) == (False, True)
    project.clock.advance(DELAY - 1)
    assert not project.may()
    project.clock.advance(1)
    assert project.may()


def test_a_role_that_was_taken_counts_for_a_while():
    """Two changes shortly after each other arrive one after the other, also over a restart."""
    project = Project()
    project.grant(USER)
    project.clock.advance(DELAY)
    project.grant(VIEWER)
    project.clock.advance(60)
    project.grant()
    project.start()
    create = "storage.objects.create"
    assert project.may(create)
    project.clock.advance(60)
    assert (project.may(create), project.may()) == (False, True)
    project.clock.advance(60)
    assert project.may(create), "nobody names it any more"


@pytest.mark.parametrize(
    ("options", "seconds"),
    [
        (Options(latency="realistic"), DELAY),
        (Options(latency="instant"), 0.0),
        (Options(policy_delay=7.0), 7.0),
        (Options(), PROFILES["scaled"].policy),
    ],
)
def test_how_long_a_policy_takes_is_the_profiles_or_what_was_set(options, seconds):
    """Two minutes where times are real, as Google documents; never nothing unless all is instant."""
    assert options.policy_seconds == seconds
    assert PROFILES["scaled"].policy > 0
