"""SkyPilot's own provisioner of TPU VMs, led to the local cloud by one patched function: where an API is."""

import os
import sys
import time
from unittest.mock import patch

import googleapiclient.discovery
from google.auth.credentials import AnonymousCredentials
from sky.adaptors import gcp as adaptor
from sky.provision import common, gcp
from sky.provision.gcp import instance_utils
from sky.utils.status_lib import ClusterStatus

ENDPOINT, PROJECT, ZONE = (
    os.environ["STORAGE_EMULATOR_HOST"],
    os.environ["GOOGLE_CLOUD_PROJECT"],
    "us-central1-a",
)
WHERE = {"project_id": PROJECT, "region": "us-central1", "availability_zone": ZONE, "_has_tpus": True}
WHERE["firewall_rule"] = "sky-ports"
NODE = {
    "acceleratorType": "v5litepod-4",
    "runtimeVersion": "v2-alpha-tpuv5-lite",
    "metadata": {"ssh-keys": "sky:ssh-ed25519 AAAA sky"},
    "networkConfig": {"enableExternalIps": True},
}


def api(service, version, *_words, **more):
    options = {"api_endpoint": f"{ENDPOINT}/compute/v1/" if service == "compute" else ENDPOINT}
    return googleapiclient.discovery.build(
        service, version, credentials=AnonymousCredentials(), client_options=options,
        cache_discovery=False, static_discovery=True,
    )  # fmt: skip


def run(name, count=1, **more):
    """Ask for a cluster."""
    config = common.ProvisionConfig(
        provider_config=WHERE, authentication_config={}, docker_config={}, node_config={**NODE, **more},
        count=count, tags={}, resume_stopped_nodes=True, ports_to_open_on_launch=None,
    )  # fmt: skip
    return gcp.run_instances("us-central1", name, name, config)


def states(name):
    """Return the states of the cluster's nodes."""
    return [state for state, _ in gcp.query_instances(name, name, WHERE).values()]


def one_node_comes_up():
    record = run("alone")
    return len(record.created_instance_ids) == 1 and states("alone") == [ClusterStatus.UP]


def asked_again_it_is_the_same():
    record = run("alone")
    return record.created_instance_ids == [] and "-head-" in record.head_instance_id


def its_addresses_are_listed():
    info = gcp.get_cluster_info("us-central1", "alone", WHERE)
    (hosts,) = info.instances.values()
    return len(hosts) == 1 and bool(hosts[0].external_ip) and hosts[0].internal_ip.startswith("127.")


def labels_are_set():
    tpu = instance_utils.GCPTPUVMInstance
    (name,) = gcp.query_instances("alone", "alone", WHERE)
    tpu.set_labels(PROJECT, ZONE, name, {"colour": "blue"})
    return list(tpu.filter(PROJECT, ZONE, {"colour": "blue"}, None)) == [name]


def a_network_tag_is_added():
    tpu = instance_utils.GCPTPUVMInstance
    (name,) = gcp.query_instances("alone", "alone", WHERE)
    tpu.add_network_tag_if_not_exist(PROJECT, ZONE, name, "open")
    for _ in range(50):  # the operation is not waited for
        if tpu.load_resource().projects().locations().nodes().get(name=name).execute().get("tags") == [
            "open"
        ]:
            return True
        time.sleep(0.2)  # the cloud carries it out, and this client does not say when
    return False


def its_network_is_listed():
    (name,) = gcp.query_instances("alone", "alone", WHERE)
    return instance_utils.GCPTPUVMInstance.get_vpc_name(PROJECT, ZONE, name) == "default"


def it_stops():
    gcp.stop_instances("alone", WHERE)
    return states("alone") == [ClusterStatus.STOPPED]


def it_resumes():
    record = run("alone")
    return len(record.resumed_instance_ids) == 1 and states("alone") == [ClusterStatus.UP]


def ports_are_opened_and_closed():
    gcp.open_ports("alone", ["8888"], WHERE)
    gcp.cleanup_ports("alone", ["8888"], WHERE)
    return True


def it_is_terminated():
    gcp.terminate_instances("alone", WHERE)
    return states("alone") == []


def terminated_again_nothing_happens():
    gcp.terminate_instances("alone", WHERE)
    return True


def two_nodes_of_spot_come_up():
    record = run("pair", count=2, schedulingConfig={"preemptible": True})
    return len(record.created_instance_ids) == 2 and states("pair") == [ClusterStatus.UP] * 2


def two_nodes_go():
    gcp.terminate_instances("pair", WHERE)
    return states("pair") == []


def a_queued_resource_comes_up():
    run("queued", gcp_queued_resource=True)
    return states("queued") == [ClusterStatus.UP]


def a_queued_resource_goes():
    gcp.terminate_instances("queued", WHERE)
    return states("queued") == []


def a_slice_has_all_its_hosts():
    run("slice", acceleratorType="v5litepod-16")
    info = gcp.get_cluster_info("us-central1", "slice", WHERE)
    gcp.terminate_instances("slice", WHERE)
    return [len(hosts) for hosts in info.instances.values()] == [4]


def an_unknown_type_is_an_error():
    try:
        run("wrong", acceleratorType="v99-8")
    except common.ProvisionerError:
        return states("wrong") == []
    return False


CASES = (
    one_node_comes_up,
    asked_again_it_is_the_same,
    its_addresses_are_listed,
    labels_are_set,
    a_network_tag_is_added,
    its_network_is_listed,
    it_stops,
    it_resumes,
    ports_are_opened_and_closed,
    it_is_terminated,
    terminated_again_nothing_happens,
    two_nodes_of_spot_come_up,
    two_nodes_go,
    a_queued_resource_comes_up,
    a_queued_resource_goes,
    a_slice_has_all_its_hosts,
    an_unknown_type_is_an_error,
)

if __name__ == "__main__":
    with patch.object(adaptor, "build", api):
        for case in CASES:
            try:
                print("ok" if case() else "FAIL", case.__name__, flush=True)
            except Exception as error:
                print("FAIL", case.__name__, repr(error)[:600].replace("\n", " "), flush=True)
    sys.exit(0)
