"""Run the job on each host of a TPU slice of this Ray cluster: all of them again when one is lost or fails."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import ray
from ray.util.tpu import SlicePlacementGroup, run_on_slice

SETTINGS = os.environ


@ray.remote(max_retries=0)
def host(script, shared):
    """Run the script of the job; return its exit status."""
    labels = ray.get_runtime_context().get_node_labels()
    worker = labels.get("ray.io/tpu-worker-id") or os.environ.get("TPU_WORKER_ID", "0")
    job = subprocess.Popen(
        ["bash", "-c", script],
        env={**os.environ, "TPUCTL_WORKER_ID": worker, "SHARED": shared},
        start_new_session=True,
    )
    try:
        return job.wait()
    finally:
        # Ray interrupts this task when another host is lost. The job may save; what is left of it is killed.
        stop(job, getattr(signal, f"SIG{SETTINGS['TPUCTL_STOP_SIGNAL']}"))
        stop(job, signal.SIGKILL)


def stop(job, number):
    """Signal all processes of the job, and wait for the first one to end."""
    try:
        os.killpg(job.pid, number)
        job.wait(int(SETTINGS["TPUCTL_GRACE_SECONDS"]))
    except (ProcessLookupError, subprocess.TimeoutExpired):
        pass


def attempt():
    """Run the job once; return its exit status, None for a host that was lost."""
    group = SlicePlacementGroup(
        topology=SETTINGS["TPUCTL_TOPOLOGY"],
        accelerator_version=SETTINGS["TPUCTL_GENERATION"],
        chips_per_vm=int(SETTINGS["TPUCTL_CHIPS"]),
        head_reservation_timeout_s=None,
    )
    try:
        script = Path(__file__).with_name("job.sh").read_text()
        # A task has the variables of runtime_env.yaml, not those of this process.
        waiting = run_on_slice(host, script, os.environ.get("SHARED", ""), tpu_slice=group)
        status = 0
        while waiting and status == 0:
            done, waiting = ray.wait(waiting)
            try:
                status = ray.get(done[0])
            except ray.exceptions.RayError as error:
                print("a host is lost:", error, flush=True)
                status = None
        for one in waiting:
            ray.cancel(one)
        if waiting:
            ray.wait(waiting, num_returns=len(waiting), timeout=2 * int(SETTINGS["TPUCTL_GRACE_SECONDS"]))
        return status
    finally:
        group.shutdown()


def main():
    """Start the job until it ends well, or has failed too often. A lost host is no failure."""
    ray.init()
    failures, limit = 0, int(SETTINGS["TPUCTL_FAILURES"])
    while failures < limit:
        status = attempt()
        if status == 0:
            return 0
        failures += status is not None
        print(f"starts that failed: {failures} of {limit}", flush=True)
    return 1


if __name__ == "__main__":
    sys.exit(main())
