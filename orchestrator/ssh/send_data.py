"""Bring the job's data from this computer to the bucket: each file once, under the sha256 of what it holds."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from orchestrator.contract.object_names import DATA
from orchestrator.domain.ports import Store
from orchestrator.ssh.local_data import DataFile, DataSet, changed, stamp_of

PARALLEL = 8


def missing(store: Store, sets: Sequence[DataSet]) -> list[DataFile]:
    """
    Return the files that the bucket does not hold as they are, each content once.

    An upload that was killed while its file was being written has left another checksum than is wanted.
    """
    wanted = {file.sha256: file for one in sets for file in one.files}
    held = store.checksums(DATA) if wanted else {}
    return [f for f in wanted.values() if held.get(DATA + f.sha256) != (f.size, f.crc32c)]


def send(store: Store, files: Sequence[DataFile], tell: Callable[[DataFile], None]) -> None:
    """
    Upload what is `missing`, some at a time; *tell* is told of each file that is there.

    May be killed and repeated at any line. Raise UsageError for a file that changes meanwhile; what was read
    of it is taken away again.
    """
    there = store.checksums(DATA)

    def send_one(file: DataFile) -> None:
        name = DATA + file.sha256
        if stamp_of(file.path) != file.stamp:
            raise changed(file)
        if name in there:
            store.delete(name)
        store.upload(name, file.path)
        if stamp_of(file.path) != file.stamp:
            store.delete(name)
            raise changed(file)
        tell(file)

    pool = ThreadPoolExecutor(PARALLEL)
    try:
        for _ in pool.map(send_one, files):
            pass
    finally:
        pool.shutdown(cancel_futures=True)
