"""Clusters of one node on this machine: SLURM from its packages, and Ray. They end with the block.

Everything listens on the loopback address; settings, logs and keys lie in a folder of the caller's.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

SLURM_PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "scancel")
_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
_SLURM_CONF = """
ClusterName=one
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
KillWait=30
SchedulerParameters=sched_interval=2,batch_sched_delay=0
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory={memory} State=UNKNOWN
PartitionName=main Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


# Process numbers of one's own: what runs so cannot see other processes, as on another machine.
# The shell, its first process, sees to those whose parents have gone.
_ALONE = (
    *("unshare", "--pid", "--fork", "--mount-proc", "--kill-child"),
    *("bash", "-c", '"$@" & wait', "node"),
)


class Unavailable(Exception):
    """What a cluster needs is not on this machine."""


def _alone(apart: bool) -> list[str]:
    """What a node's command begins with."""
    if not apart:
        return []
    if subprocess.run([*_ALONE, "true"], check=False, capture_output=True).returncode:
        raise Unavailable("a node with process numbers of its own needs unshare, and to be root")
    return list(_ALONE)


@contextmanager
def slurm(folder: Path, apart: bool = False) -> Iterator[dict[str, str]]:
    """SLURM with one node, without accounting: the environment in which its commands find it.

    Args:
        folder: For its files, to be made.
        apart: Let the node have process numbers of its own, so that jobs cannot see the sweep's
            process.

    Raises:
        Unavailable: Its programs are not installed, or this is not the superuser.
        RuntimeError: It does not start.
    """
    missing = [name for name in SLURM_PROGRAMS if shutil.which(name, path=_PATH) is None]
    if missing:
        packages = "apt-get install slurmctld slurmd munge slurm-client"
        raise Unavailable(f"no {', '.join(missing)}; on Debian: {packages}")
    if os.getuid() != 0:
        raise Unavailable("slurmd has to be started as root")
    node = _alone(apart)
    for name in ("state", "spool"):
        (folder / name).mkdir(parents=True)
    key = folder / "munge.key"
    key.write_bytes(secrets.token_bytes(128))
    key.chmod(0o400)
    ports = _free_ports(2)
    megabytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
    values = {
        "host": socket.gethostname().partition(".")[0],
        "cpus": os.cpu_count(),
        "memory": megabytes - 512,
    }
    text = _SLURM_CONF.format(folder=folder, ports=ports, **values)
    (folder / "slurm.conf").write_text(text.lstrip())
    environment = os.environ | {"PATH": _PATH, "SLURM_CONF": str(folder / "slurm.conf")}
    munged = [
        f"--{name}={folder}/munge.{end}"
        for name, end in (
            ("key-file", "key"),
            ("socket", "socket"),
            ("pid-file", "pid"),
            ("log-file", "log"),
            ("seed-file", "seed"),
        )
    ]
    with ExitStack() as stack:
        for command in (
            ["munged", "--foreground", "--force", *munged],
            ["slurmctld", "-D", "-i"],
            [*node, "slurmd", "-D", "-c"],
        ):
            log = folder / f"{command[0]}.out"
            stack.enter_context(_started(command, environment, log))
            if command[0] == "munged":
                _until(lambda: (folder / "munge.socket").exists(), log)
        ready = ["sinfo", "--noheader", "--format=%T"]
        _until(lambda: "idle" in _output(ready, environment), folder / "slurmctld.log")
        try:
            yield environment
        finally:
            _output(["scancel", f"--user={os.getuid()}"], environment)
            none = ["squeue", "--noheader"]
            _until(lambda: not _output(none, environment), folder / "slurmctld.log")


@contextmanager
def ray_cluster(folder: Path, cpus: int = 2, apart: bool = False) -> Iterator[dict[str, str]]:
    """Ray with one node: the environment in which `address=auto` finds it.

    Args:
        folder: For its files, to be made.
        cpus: How many runs it takes at once.
        apart: Let the runs be on a second node, with process numbers of its own.

    Raises:
        Unavailable: It is not installed, or this system makes no second node.
        RuntimeError: It does not start.
    """
    program = Path(sys.executable).with_name("ray")
    if not program.exists():
        raise Unavailable("no ray; pip install 'mixbench[ray]'")
    (port,) = _free_ports(1)
    address = f"127.0.0.2:{port}"
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    environment = os.environ | token | {"RAY_USAGE_STATS_ENABLED": "0"}
    common = [str(program), "start", "--block", "--object-store-memory=80000000"]
    head = [
        *common,
        "--head",
        "--node-ip-address=127.0.0.2",  # Ray replaces 127.0.0.1 by an outer address
        f"--port={port}",
        f"--num-cpus={0 if apart else cpus}",
        "--include-dashboard=false",
        f"--temp-dir={folder}",
    ]
    second = [
        *_alone(apart),
        *common,
        f"--address={address}",
        "--node-ip-address=127.0.0.3",
        f"--num-cpus={cpus}",
    ]

    def node(command: list[str], log: Path) -> None:
        stack.enter_context(_started(command, environment, log))
        _until(lambda: "Ray runtime started" in log.read_text(), log)

    with ExitStack() as stack:
        node(head, folder.with_name("head.out"))
        if apart:
            node(second, folder.with_name("second.out"))
        yield environment | {"RAY_ADDRESS": address}


@contextmanager
def _started(command: list[str], environment: dict[str, str], log: Path) -> Iterator[None]:
    with log.open("w") as file:
        process = subprocess.Popen(
            command, env=environment, stdout=file, stderr=file, start_new_session=True
        )
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _output(command: list[str], environment: dict[str, str]) -> str:
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def _until(ready: object, log: Path, seconds: float = 90) -> None:
    assert callable(ready)
    deadline = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > deadline:
            said = log.read_text()[-2000:] if log.exists() else ""
            raise RuntimeError(f"it does not start (or end) within {seconds:.0f} s:\n{said}")
        time.sleep(0.25)


def _free_ports(number: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(number)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
