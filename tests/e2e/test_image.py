"""A job in a container image, from `up` to `done`: killed and given notice, it goes on in the same image."""

import pytest

from tests.kit.images import JOB, needs_containers, registry, small_image

pytestmark = [pytest.mark.e2e, needs_containers]


def test_a_job_in_an_image_survives_a_notice_and_a_kill(stage):
    """Three machines run the digest that the first one has pulled; none of the computer's files is visible."""
    hidden = stage.folder / "of-the-computer"
    hidden.write_text("x")
    (stage.work / "train.sh").write_bytes(JOB.read_bytes())
    with registry() as images:
        digest = images.push("p/train", "1", small_image())
        stage.write(
            command="exec bash train.sh", image=f"{images.host}/p/train:1", setup="echo by-setup >/etc/set-up",
            env={"HIDDEN": str(hidden)}, checkpoint={"format": "marker"},
        )  # fmt: skip
        stage.tpuctl("local", "start", "--notice", "30")
        stage.tpuctl("up")
        watch = stage.start("watch")
        stage.wait_for("a checkpoint", lambda: stage.at(1, committed=10))
        images.push("p/train", "1", small_image()[:1])

        stage.tpuctl("local", "preempt", "e2e-tpu-g1")
        stage.wait_for("incarnation 2", lambda: stage.at(1, incarnation=2, committed=1))
        noticed = stage.beats(1)[0]
        assert noticed["committed_step"] == noticed["step"]
        stage.tpuctl("local", "preempt", "e2e-tpu-g2", "--no-notice")
        (beat,) = stage.wait_for("incarnation 3", lambda: stage.at(1, incarnation=3))
        assert beat["image"] == f"{images.host}/p/train@{digest}"
        assert f"/p/train@{digest[:19]}\n" in stage.tpuctl("status", "--fresh").out
        stage.wait_for("its log", lambda: "setup: " in stage.logs(3))
        watch.kill()
        watch.wait(30)

    log = stage.logs(3)
    assert "image: made of layers, python3: none" in log
    assert f"ls: cannot access '{hidden}'" in log
    assert "setup: by-setup" in log
    assert "begin after 0" not in log
    stage.tpuctl("down", "--yes", "--delete-data")
