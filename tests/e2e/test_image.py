"""A job in a container image, from `up` to `done`: killed and given notice, it goes on in the same image."""

import pytest

from tests.kit.images import JOB, needs_containers, registry, small_image

pytestmark = [pytest.mark.e2e, needs_containers]


def test_a_job_in_an_image_survives_a_notice_and_a_kill(lab):
    """Three machines run the digest that the first one has pulled; none of the computer's files is visible."""
    hidden = lab.folder / "of-the-computer"
    hidden.write_text("x")
    (lab.work / "train.sh").write_bytes(JOB.read_bytes())
    with registry() as images:
        digest = images.push("p/train", "1", small_image())
        lab.write(
            command="exec bash train.sh", image=f"{images.host}/p/train:1", setup="echo by-setup >/etc/set-up",
            env={"HIDDEN": str(hidden)}, checkpoint={"format": "marker"},
        )  # fmt: skip
        lab.tpuctl("local", "start", "--notice", "30")
        lab.tpuctl("up")
        watch = lab.start("watch")
        lab.wait_for("a checkpoint", lambda: lab.at(1, committed=10))
        images.push("p/train", "1", small_image()[:1])

        lab.tpuctl("local", "preempt", "e2e-tpu-g1")
        lab.wait_for("incarnation 2", lambda: lab.at(1, incarnation=2, committed=1))
        noticed = lab.heartbeats(1)[0]
        assert noticed["committed_step"] == noticed["step"]
        lab.tpuctl("local", "preempt", "e2e-tpu-g2", "--no-notice")
        (heartbeat,) = lab.wait_for("incarnation 3", lambda: lab.at(1, incarnation=3))
        assert heartbeat["image"] == f"{images.host}/p/train@{digest}"
        assert f"/p/train@{digest[:19]}\n" in lab.tpuctl("status", "--fresh").out
        lab.wait_for("its log", lambda: "setup: " in lab.logs(3))
        watch.kill()
        watch.wait(30)

    log = lab.logs(3)
    assert "image: made of layers, python3: none" in log
    assert f"ls: cannot access '{hidden}'" in log
    assert "setup: by-setup" in log
    assert "begin after 0" not in log
    lab.tpuctl("down", "--yes", "--delete-data")
