"""Events and the job's log: written to the bucket by one process, read back by another."""

from orchestrator.engine.bucket import job_logs
from orchestrator.engine.bucket.job_logs import JobLogReader, LogTail
from orchestrator.engine.publish.event_log import read_events


def test_events_are_stored_and_read_back_in_order(lab):
    """A report made on another computer is the same."""
    controller = lab.up()
    stored = read_events(lab.controller(state="another computer").cloud.store)
    assert sorted((e.at, e.kind, e.message) for e in stored) == sorted(
        (e.at, e.kind, e.message) for e in controller.events
    )
    assert [e.at for e in stored] == sorted(e.at for e in stored)


def test_an_event_that_cannot_be_stored_is_retained_for_the_next_time(lab):
    """A bucket that does not answer delays the events."""
    controller = lab.up()
    lab.cloud.preempt("demo-tpu-g1", notice=False)
    controller.one_pass()
    lab.cloud.fail_next("storage.objects.insert", ["drop-answer"])
    controller.sink.flush()
    controller.sink.flush()
    assert {"preempted", "tpu-create"} <= {e.kind for e in read_events(controller.cloud.store)}


def test_no_event_is_lost_when_two_moments_are_the_same(lab):
    """Events of one pass carry the same time and yet different names."""
    controller = lab.up()
    lab.cloud.preempt("demo-tpu-g1", notice=False)
    for _ in range(2):
        controller.one_pass()
        controller.sink.flush()
    assert len(read_events(controller.cloud.store)) == len(controller.events)


def test_an_unreadable_event_is_skipped(lab):
    """One bad object does not take the others away."""
    controller = lab.up()
    count = len(read_events(controller.cloud.store))
    lab.put(".tpuctl/events/0-00-x.json", b"{")
    assert len(read_events(controller.cloud.store)) == count


def test_the_log_is_followed_over_segments_and_incarnations(lab):
    """Only whole lines come, each once, in the order in which they were written."""
    store = lab.up().cloud.store
    log = JobLogReader(store)
    lab.put("logs/g1/w0/000001.log", b"one\ntwo\nthr")
    assert [line for _, _, line in log.new_lines()] == ["one", "two"]
    lab.put("logs/g1/w0/000001.log", b"one\ntwo\nthree\nfo")
    assert [line for _, _, line in log.new_lines()] == ["three"]
    lab.put("logs/g1/w0/000002.log", b"ur\nfive\n")
    lab.put("logs/g2/w0/000001.log", "s\u00e9chs\n\n".encode())
    assert list(log.new_lines()) == [(1, 0, "four"), (1, 0, "five"), (2, 0, "s\u00e9chs"), (2, 0, "")]
    assert list(log.new_lines()) == []


def test_the_log_of_one_worker_can_be_chosen(lab):
    """Workers are distinguished, and strange objects are none."""
    store = lab.up().cloud.store
    lab.put("logs/g1/w0/000001.log", b"zero\n")
    lab.put("logs/g1/w1/000001.log", b"one\n")
    lab.put("logs/readme.txt", b"no log\n")
    assert list(JobLogReader(store, 1).new_lines()) == [(1, 1, "one")]
    assert len(list(JobLogReader(store).new_lines())) == 2


def test_lines_that_do_not_end_are_held_up_to_one_bound(lab, monkeypatch):
    """Machines may make up workers; a name that no worker has is no log."""
    monkeypatch.setattr(job_logs, "ALL_RESTS", 2500)
    store = lab.up().cloud.store
    for worker in range(9):
        lab.put(f"logs/g1/w{worker}/000001.log", b"x" * 1000)
    for name in ("g1/w4096", "g9999999999/w0", "g1/w99999", "g1/w\u0661"):
        lab.put(f"logs/{name}/000001.log", b"made up\n")
    log = JobLogReader(store)
    given = list(log.new_lines())
    assert [(worker, len(line)) for _, worker, line in given] == [(worker, 1000) for worker in range(2, 9)]
    assert [(worker, len(line)) for _, worker, line in log.unfinished()] == [(0, 1000), (1, 1000)]
    lab.put("logs/g1/w0/000001.log", b"x" * 1000 + b"\n")
    assert [len(line) for _, _, line in log.new_lines()] == [1000]
    lab.put("logs/g1/w5/000002.log", b"y" * 1000)
    assert list(log.new_lines()) == []


def test_the_end_of_the_log_is_that_of_the_newest_machine(lab, monkeypatch):
    """Its last lines, the one that has no end yet among them; what was there before is not read again."""
    store = lab.up().cloud.store
    tail = LogTail(store, 0, 3)
    assert tail.read() == []
    lab.put("logs/g1/w0/000001.log", b"old\n" * 9)
    lab.put("logs/g2/w0/000001.log", b"one\ntwo\n")
    lab.put("logs/g2/w1/000001.log", b"another worker\n")
    assert tail.read() == ["one", "two"]
    reads = []
    monkeypatch.setattr(store, "read", lambda *a, _read=store.read: reads.append(a) or _read(*a))
    assert tail.read() == ["one", "two"]
    assert reads == []
    lab.put("logs/g2/w0/000001.log", b"one\ntwo\nthree\nfour\rfi")
    assert tail.read() == ["three", "four", "fi"]
    assert [(offset, size) for _, offset, size in reads] == [(8, 13)]
    lab.put("logs/g2/w0/000002.log", b"x" * (2 * job_logs.TAIL) + b"\nend\n")
    assert [len(line) for line in tail.read()] == [job_logs.TAIL - 5, 3]
