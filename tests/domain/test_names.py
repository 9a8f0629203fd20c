"""Deterministic names."""

import re

import pytest

from orchestrator.domain import names
from tests.planning.planning_kit import a_spec


@pytest.mark.parametrize(
    ("zone", "region"), [("europe-west4-b", "europe-west4"), ("us-central1-ai1a", "us-central1")]
)
def test_the_region_is_the_zone_without_its_last_part(zone, region):
    """AI zones end in more than one letter."""
    assert names.region_of(zone) == region


def test_every_name_fits_google_for_the_longest_deployment_name():
    """Forty letters leave room for all we add: 63 for bucket, node and VM, label values too."""
    spec = a_spec(name="a" * 40)
    made = [names.bucket_name(spec, "my-project"), names.node_name(spec, 10**6), names.vm_name(spec)]
    assert all(re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", name) and len(name) <= 63 for name in made)
    assert all(len(value) <= 63 for value in names.labels(spec, "tpu", 10**6).values())


def test_two_projects_get_two_buckets():
    """Bucket names are global; the digest keeps deployments of equal name apart."""
    spec = a_spec()
    assert names.bucket_name(spec, "one") != names.bucket_name(spec, "two")


def test_a_given_bucket_name_is_used():
    """The file's bucket name wins over the derived one."""
    assert names.bucket_name(a_spec(bucket__name="mine-1"), "p") == "mine-1"


def test_each_incarnation_has_its_own_node_name_and_can_be_read_back():
    """The incarnation of a node is read from its label, and from its name when labels were lost."""
    spec = a_spec()
    assert names.incarnation_of(names.node_name(spec, 7), {}) == 7
    assert names.incarnation_of("renamed", names.labels(spec, "tpu", 8)) == 8
    assert names.incarnation_of("somebody-elses", {}) is None


def test_the_vm_stands_in_the_first_zone_unless_the_file_names_one():
    """The VM follows the TPU."""
    assert names.vm_zone(a_spec()) == "europe-west4-b"
    assert names.vm_zone(a_spec(vm__zone="europe-west4-c")) == "europe-west4-c"
    assert names.vm_zone(a_spec(vm="none")) == "europe-west4-b"
