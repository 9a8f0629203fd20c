"""
The real Slurm, from Debian's packages, unpacked into a folder: nothing is installed on the computer.

Each machine of a fleet is one slurmd with its own address and port, and all that it has started. A machine is
lost as TPU machines are: everything that runs on it is gone at once, and nobody is asked.
"""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

PACKAGES = (
    "slurmctld", "slurmd", "slurm-client", "slurm-wlm-basic-plugins", "slurmdbd", "slurm-wlm-mysql-plugin", "munge",
    "libmunge2", "libhwloc15", "libjson-c5", "liblua5.1-0", "libyaml-0-2", "libnuma1",
    "mariadb-server-core", "mariadb-client-core", "libmariadb3", "libaio1", "liburing2",
)  # fmt: skip
DAEMONS = ("slurmctld", "slurmd", "slurmstepd")
MARK = "FLEET_MACHINE"
"""Variable of a machine's daemon by which all that it has started is found."""
CONTROLLER_PORT, FIRST_PORT, DATABASE_PORT = 26817, 27000, 26819
PATIENCE = 60.0
CONF = """\
ClusterName=fleet
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
MailProg=/bin/true
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock,cred_expire={hold}
CredType=cred/munge
PluginDir={plugins}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
SchedulerParameters=bf_interval=5,sched_interval=5,batch_sched_delay=1
PriorityType=priority/multifactor
PriorityCalcPeriod=1
JobRequeue=1
ReturnToService=2
SlurmdTimeout=300
KillWait=5
MinJobAge=3600
MaxArraySize=10001
{more}
NodeName=tpu-[1-{machines}] NodeAddr=127.0.0.1 NodeHostName=localhost Port=[{first}-{last}] CPUs=1 RealMemory=100
PartitionName=tpu Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=EXCLUSIVE
"""
DATABASE_CONF = """\
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
PluginDir={plugins}
DbdHost=localhost
DbdPort={port}
SlurmUser=root
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={sql}
StorageUser=slurm
StoragePass=slurm
StorageLoc=slurm
LogFile={folder}/slurmdbd.log
PidFile={folder}/slurmdbd.pid
"""
ACCOUNTS = """\
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={port}
AccountingStoragePass={folder}/munge.sock
AccountingStorageEnforce=associations,limits
PriorityWeightFairshare=100000
"""


def unpacked(folder: Path) -> Path:
    """Download the distribution's packages and unpack them into *folder*, once; about 250 MB with MariaDB."""
    done = folder / "unpacked"
    if done.exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        ["apt-get", "download", "-qq", *PACKAGES], cwd=folder, check=True, stderr=subprocess.DEVNULL
    )
    for package in folder.glob("*.deb"):
        subprocess.run(["dpkg", "-x", package.name, "."], cwd=folder, check=True)
    for name in DAEMONS:
        # Under another name slurmctld takes itself for a client, and dies when it speaks to slurmdbd.
        (folder / "usr/sbin" / name).unlink(missing_ok=True)
        (folder / "usr/sbin" / name).symlink_to(f"{name}-wlm")
    done.touch()
    return folder


class Slurm:
    """
    Hold one controller with its machines; with *users*, also the database that keeps their shares.

    *users* has an account for each name, and its limit as sacctmgr takes it, or nothing.
    """

    def __init__(
        self,
        tree: Path,
        folder: Path,
        machines: int,
        *,
        users: Mapping[str, str] | None = None,
        hold: int = 10,
    ) -> None:
        self.folder, self.machines, self._tree = folder, machines, tree
        library = tree / "usr/lib/x86_64-linux-gnu"
        self.environ = {
            "PATH": f"{tree}/usr/bin:{tree}/usr/sbin:{os.environ['PATH']}", "HOME": str(folder),
            "LD_LIBRARY_PATH": f"{library}:{library}/slurm-wlm", "SLURM_CONF": str(folder / "slurm.conf"),
        }  # fmt: skip
        for name in ("state", "spool"):
            (folder / name).mkdir(parents=True)
        values = {"folder": folder, "plugins": library / "slurm-wlm"}
        more = ACCOUNTS.format(port=DATABASE_PORT, **values) if users else ""
        (folder / "slurm.conf").write_text(
            CONF.format(
                host=socket.gethostname(), port=CONTROLLER_PORT, machines=machines, more=more, hold=hold,
                first=FIRST_PORT + 1, last=FIRST_PORT + machines, **values,
            )
        )  # fmt: skip
        (folder / "slurmdbd.conf").write_text(
            DATABASE_CONF.format(port=DATABASE_PORT, sql=DATABASE_PORT + 1, **values)
        )
        (folder / "slurmdbd.conf").chmod(0o600)
        (folder / "munge.key").write_bytes(os.urandom(1024))
        (folder / "munge.key").chmod(0o600)
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        self._daemon(
            "munged", "--force", "--foreground", f"--socket={folder}/munge.sock", f"--key-file={folder}/munge.key",
            f"--pid-file={folder}/munge.pid", f"--log-file={folder}/munge.log", f"--seed-file={folder}/munge.seed",
        )  # fmt: skip
        if users:
            self._database(library)
            self._accounts(users)
        self.start_controller(fresh=True)

    def start_controller(self, *, fresh: bool = False) -> float:
        """Start the controller; return the seconds until it answered."""
        began = time.monotonic()
        self._daemon("slurmctld", "-D", *(("-c",) if fresh else ()))
        until("the controller answers", lambda: "UP" in self._said("scontrol", "ping"))
        return time.monotonic() - began

    def kill_controller(self) -> None:
        """Kill the controller."""
        self._daemons.pop("slurmctld").kill()

    def add(self, number: int) -> None:
        """Let a machine begin."""
        name = f"tpu-{number}"
        self._daemon(
            "slurmd",
            "-D",
            "-N",
            name,
            "-d",
            str(self._tree / "usr/sbin/slurmstepd"),
            called=name,
            **{MARK: name},
        )

    def lose(self, number: int, *, told: bool = True) -> None:
        """Kill all of a machine; *told* is what tpuctl does as soon as it knows."""
        name = f"tpu-{number}"
        process = self._daemons.pop(name)
        process.kill()
        for pid in _running_on(name):
            os.kill(pid, signal.SIGKILL)
        process.wait()
        if told:
            self.call("scontrol", "update", f"nodename={name}", "state=down", "reason=preempted")

    def call(self, *words: str) -> str:
        """Run a command of Slurm and return what it prints. Raises RuntimeError with what it says."""
        done = subprocess.run(
            words, env=self.environ, capture_output=True, text=True, check=False, timeout=PATIENCE
        )
        if done.returncode:
            raise RuntimeError(f"{words[0]}: {done.stderr.strip()}")
        return done.stdout

    def ready(self, machines: int) -> None:
        """Wait until so many machines take work."""
        until(
            "the machines are idle",
            lambda: self._said("sinfo", "-h", "-t", "idle", "-o", "%D") == str(machines),
        )

    def requeued_first(self) -> None:
        """Put tasks that have lost a machine before fresh ones: Slurm puts them behind, where they may starve."""
        for line in self._said(
            "squeue", "-h", "-r", "-t", "PD", "-O", "JobArrayID:.20,RestartCnt:.8,Nice:.12"
        ).splitlines():
            task, restarts, nice = line.split()
            if restarts != "0" and nice == "0":
                self._said("scontrol", "update", f"jobid={task}", "nice=-50000")

    def memory(self) -> dict[str, float]:
        """Return the resident megabytes of the controller, of a machine (mean), and of the database."""
        of: dict[str, list[float]] = {}
        for name, process in self._daemons.items():
            kind = "slurmd" if name.startswith("tpu-") else name
            of.setdefault(kind, []).append(_resident(process.pid))
        return {kind: sum(sizes) / len(sizes) for kind, sizes in of.items()}

    def close(self) -> None:
        """End everything that was started."""
        for name, process in reversed(self._daemons.items()):
            process.kill()
            for pid in _running_on(name):
                os.kill(pid, signal.SIGKILL)
            process.wait()

    def _database(self, library: Path) -> None:
        """Start MariaDB and slurmdbd, empty."""
        data, share = self.folder / "sql", self._tree / "usr/share/mysql"
        common = [
            f"--basedir={self._tree}/usr",
            f"--datadir={data}",
            "--user=root",
            f"--lc-messages-dir={share}",
        ]
        # slurmdbd uses stored procedures, which lie in the database's own tables.
        tables = (share / "mysql_system_tables.sql").read_text()
        data.mkdir()
        subprocess.run(
            [str(self._tree / "usr/sbin/mariadbd"), "--no-defaults", *common, "--bootstrap", "--skip-grant-tables"],
            input=f"create database slurm;\ncreate database mysql;\nuse mysql;\n{tables}", text=True,
            env=self.environ, check=True, capture_output=True,
        )  # fmt: skip
        self._daemon(
            "mariadbd", "--no-defaults", *common, "--skip-grant-tables", f"--port={DATABASE_PORT + 1}",
            "--bind-address=127.0.0.1", f"--socket={self.folder}/sql.sock", f"--plugin-dir={library}",
        )  # fmt: skip
        until("MariaDB answers", lambda: _listens(DATABASE_PORT + 1))
        self._daemon("slurmdbd", "-D")
        until("slurmdbd answers", lambda: _listens(DATABASE_PORT))

    def _accounts(self, users: Mapping[str, str]) -> None:
        """Add the accounts before the controller starts: slurmctld 22.05.8 dies of an empty tree of shares."""
        self.call("sacctmgr", "-i", "add", "cluster", "fleet")
        for user, limit in users.items():
            self.call("sacctmgr", "-i", "add", "account", user, "Fairshare=1", *([limit] if limit else ()))
            self.call("sacctmgr", "-i", "add", "user", "root", f"account={user}")

    def _daemon(self, program: str, *words: str, called: str = "", **more: str) -> None:
        path = next(
            p for p in (self._tree / "usr/sbin" / program, self._tree / "usr/bin" / program) if p.exists()
        )
        with (self.folder / f"{called or program}.out").open("ab") as out:
            self._daemons[called or program] = subprocess.Popen(
                [str(path), *words],
                env={**self.environ, **more},
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    def _said(self, *words: str) -> str:
        done = subprocess.run(
            words, env=self.environ, capture_output=True, text=True, check=False, timeout=PATIENCE
        )
        return done.stdout.strip()


def until(what: str, true: Callable[[], bool], seconds: float = PATIENCE) -> float:
    """Wait until *true* says so; return how many seconds it took. Raises TimeoutError."""
    began = time.monotonic()
    while not true():
        if time.monotonic() - began > seconds:
            raise TimeoutError(what)
        time.sleep(0.05)
    return time.monotonic() - began


def _running_on(machine: str) -> Iterator[int]:
    """Yield the processes that a machine's daemon has started; Slurm gives the jobs the machine's name, too."""
    marks = (f"{MARK}={machine}".encode(), f"SLURMD_NODENAME={machine}".encode())
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            variables = path.read_bytes().split(b"\0")
        except OSError:  # It has ended meanwhile.
            continue
        if any(mark in variables for mark in marks):
            yield int(path.parent.name)


def _resident(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
