#!/usr/bin/env python3
"""A cluster on one machine: nodes as network namespaces, joined by links of a chosen rate.

    with Cluster(nodes=4, rate="1gbit") as cluster:
        done = cluster.run(["moetax", "bench", ...], ranks_per_node=2, timeout=60)
        assert done.code == 0, done

As a program it keeps a cluster up between commands: see `cluster.py --help` and docs/cluster.md.
"""
import contextlib
import dataclasses
import fcntl
import itertools
import json
import os
import pathlib
import re
import shutil
import signal
import threading
import time

import launchers
import namespaces
from job import TAG, Job
from namespaces import ClusterError

ROOT = pathlib.Path("/run/moetax-cluster")
MTU = 9000
# A smaller burst costs up to 40 % of the rate, a shorter queue drops packets when several nodes send to one.
BURST_BYTES = 64 * 1024
QUEUE_BYTES = 16 * 1024 * 1024
HEAD_ADDRESS = "10.77.0.1"
HEAD_MAC = "02:00:0a:4d:00:01"  # fixed: a bridge without one changes its own with its ports
NOT_ROOT = "namespaces and shaped links need root"
MAX_NODES = 240  # addresses 10.77.0.10 on


@dataclasses.dataclass(frozen=True)
class Node:
    name: str  # its host name, too
    address: str
    pid: int  # of its holder


@dataclasses.dataclass(frozen=True)
class Traffic:
    """What passed a node's link since the cluster came up, frame headers included."""
    tx_bytes: int
    rx_bytes: int

    def __sub__(self, other):
        return Traffic(self.tx_bytes - other.tx_bytes, self.rx_bytes - other.rx_bytes)


class Cluster:
    """`nodes` nodes n0, n1, ... whose links carry `rate` (as `tc` writes it) in each direction.

    Launchers run on one more node, `head`: the switch itself, whose link is not shaped. When the process that made a
    cluster ends, by whatever means, the kernel ends the cluster. `logs`, a directory, keeps what jobs wrote; otherwise
    it goes with the cluster. Nodes are given by number. One thread at a time.
    """

    def __init__(self, nodes=4, rate="1gbit", logs=None):
        if not 1 <= nodes <= MAX_NODES:
            raise ClusterError(f"{nodes} nodes asked for; a cluster has 1 to {MAX_NODES}")
        self._num_nodes, self._rate = nodes, rate
        self._logs = pathlib.Path(logs).resolve() if logs else None
        self._holders, self._jobs, self._owner, self._lock = [], [], None, None
        self.name, self.directory, self.head, self.nodes = None, None, None, []

    def __enter__(self):
        self._restore_sigterm = leave_on_sigterm()
        self.up(f"{os.getpid()}-{os.urandom(3).hex()}", owned=True)
        return self

    def __exit__(self, *_):
        try:
            self.down()
        finally:
            self._restore_sigterm()

    def up(self, name, owned=False):
        """Builds the cluster. `owned`: it ends with this process; otherwise with `down()`, after `attach(name)` too."""
        sweep()
        self._claim(name)
        try:
            self._build(owned)
        except BaseException:
            self.down()
            raise

    @classmethod
    def attach(cls, name):
        """The cluster that another process brought up by this name."""
        sweep()
        try:
            state = json.loads((ROOT / name / "state.json").read_text())
        except FileNotFoundError:
            raise ClusterError(f"no cluster named {name} is up") from None
        self = cls(nodes=len(state["nodes"]))
        self.name, self.directory = name, ROOT / name
        self.head, *self.nodes = (Node(**node) for node in [state["head"], *state["nodes"]])
        return self

    def down(self):
        """Ends every process of the cluster; its namespaces and links go with them."""
        if self.head:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.head.pid, signal.SIGKILL)
        for descriptor in (self._owner, self._lock):
            if descriptor is not None:
                os.close(descriptor)
        for job in self._jobs:
            job.end()
        for holder in self._holders:
            holder.wait()
        self._holders, self._jobs, self._owner, self._lock, self.head = [], [], None, None, None
        if self.directory:
            _wait_until_unlocked(self.directory)
            self.directory = None
            sweep()

    def set_rate(self, node, rate):
        """Changes the rate of a node's link, in both directions, while traffic flows."""
        shape = f"root tbf rate {rate} burst {BURST_BYTES} limit {QUEUE_BYTES}"
        node = self.nodes[node]
        namespaces.network(node.pid, "tc", [f"qdisc replace dev eth0 {shape}"])
        namespaces.network(self.head.pid, "tc", [f"qdisc replace dev {node.name} {shape}"])

    def cut(self, node):
        """Pulls a node's cable. What is under way is lost."""
        namespaces.network(self.head.pid, "ip", [f"link set {self.nodes[node].name} down"])

    def restore(self, node):
        """Plugs a node's cable in again."""
        namespaces.network(self.head.pid, "ip", [f"link set {self.nodes[node].name} up"])

    def traffic(self):
        """A `Traffic` for each node."""
        return [self._traffic(node) for node in self.nodes]

    def rates(self):
        """For each node the rates of its link in bits per second, (out, in)."""
        inward = self._shapers(self.head)
        return [(self._shapers(node)["eth0"], inward[node.name]) for node in self.nodes]

    def command(self, node, argv):
        """The command line that runs `argv` on a node (a number, or "head"), for `subprocess`."""
        where = self.head if node == "head" else self.nodes[node]
        return namespaces.enter(where.pid, argv, os.getcwd())

    def start(self, argv, ranks_per_node=1, nodes=None, env=None, launcher="openmpi", launcher_args=()):
        """Starts `argv` under MPI, `ranks_per_node` ranks on each of the first `nodes` nodes (all); returns the `Job`.

        Rank r runs on node r // ranks_per_node. The ranks see PATH, LD_LIBRARY_PATH and `env`, and nothing else of this
        process's environment. `launcher_args` go to the launcher as they are.
        """
        if reason := launchers.missing(launcher):
            raise ClusterError(reason)
        hosts = [node.name for node in self.nodes[:nodes]]
        directory = self._new_job_directory()
        launch = launchers.command(launcher, hosts, ranks_per_node, launcher_args, [str(word) for word in argv])
        environment = self._environment(directory) | launchers.LAUNCHERS[launcher].settings | (env or {})
        job = Job(namespaces.enter(self.head.pid, launch, os.getcwd()), environment, directory,
                  len(hosts) * ranks_per_node)
        self._jobs.append(job)
        return job

    def run(self, argv, *, timeout, **how):
        """Starts `argv` as `start` does and waits for it. Returns a `Finished`: exit code, output, errors by rank."""
        with self.start(argv, **how) as job:
            return job.wait(timeout)

    def processes(self):
        """The ids of all processes on the nodes and the head, apart from the holders."""
        holders = {node.pid for node in [self.head, *self.nodes]}
        networks = {namespaces.network_id(pid) for pid in holders} - {None}
        own = holders | {namespaces.parent(pid) for pid in holders}
        return [pid for pid in namespaces.process_ids() if pid not in own and namespaces.network_id(pid) in networks]

    def _claim(self, name):
        with _registry():
            directory = ROOT / name
            try:
                directory.mkdir()
            except FileExistsError:
                raise ClusterError(f"a cluster named {name} is up already") from None
            self._lock = os.open(directory / "lock", os.O_CREAT | os.O_RDWR)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
        self.name, self.directory = name, directory

    def _build(self, owned):
        for name in ("nodes", "jobs", "tmp", "cgroup"):
            (self.directory / name).mkdir()
        addresses = {f"n{i}": f"10.77.0.{10 + i}" for i in range(self._num_nodes)}
        names = {"localhost": "127.0.0.1", "head": HEAD_ADDRESS, **addresses}
        (self.directory / "hosts").write_text("".join(f"{address} {name}\n" for name, address in names.items()))
        end, self._owner = os.pipe() if owned else (None, None)
        try:
            self.head = self._hold("head", HEAD_ADDRESS, end)
            self.nodes = [self._hold(name, address, end) for name, address in addresses.items()]
        finally:
            if end is not None:
                os.close(end)
        self._connect()
        state = {"head": dataclasses.asdict(self.head), "nodes": [dataclasses.asdict(node) for node in self.nodes]}
        (self.directory / "state.json").write_text(json.dumps(state))

    def _hold(self, name, address, owner):
        parent = self.head.pid if self.head else None
        holder, pid = namespaces.start_holder(name, self.directory, self._lock, owner, parent)
        self._holders.append(holder)
        (self.directory / "nodes" / name).write_text(f"{namespaces.id_in_parent(pid)}\n")
        return Node(name, address, pid)

    def _connect(self):
        """The head's eth0 is a bridge; each node's eth0 is one end of a veth pair whose other end is a port of it."""
        switch = ["link set lo up", f"link add eth0 address {HEAD_MAC} mtu {MTU} type bridge", "link set eth0 up",
                  f"address add {HEAD_ADDRESS}/24 dev eth0"]
        for node in self.nodes:
            switch += [f"link add {node.name} mtu {MTU} type veth peer name eth0 mtu {MTU} netns {node.pid}",
                       f"link set {node.name} master eth0 up"]
        namespaces.network(self.head.pid, "ip", switch)
        for number, node in enumerate(self.nodes):
            namespaces.network(node.pid, "ip", ["link set lo up", f"address add {node.address}/24 dev eth0",
                                                "link set eth0 up"])
            self.set_rate(number, self._rate)

    def _traffic(self, node):
        counters = re.search(r"eth0:\s*(.*)", pathlib.Path(f"/proc/{node.pid}/net/dev").read_text())[1].split()
        return Traffic(tx_bytes=int(counters[8]), rx_bytes=int(counters[0]))

    def _shapers(self, node):
        queues = json.loads(namespaces.network(node.pid, "tc", ["qdisc show"]))
        return {queue["dev"]: 8 * queue["options"]["rate"] for queue in queues if queue["kind"] == "tbf"}

    def _new_job_directory(self):
        parent = self._logs or self.directory / "jobs"
        parent.mkdir(parents=True, exist_ok=True)
        for number in itertools.count(1):
            with contextlib.suppress(FileExistsError):
                (parent / f"job-{number}").mkdir()
                return parent / f"job-{number}"

    def _environment(self, job_directory):
        kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
        return kept | {"LANG": "C.UTF-8", "HOME": str(self.directory), "TMPDIR": str(self.directory / "tmp"),
                       "MOETAX_CLUSTER": str(self.directory), TAG: str(job_directory)}


def probe(launcher="openmpi"):
    """Why a cluster cannot be made here, or programs not be started by `launcher`, in a line; empty when all is well.

    None for `launcher`: no MPI is asked for.
    """
    if os.geteuid() != 0:
        return NOT_ROOT
    for tool, package in (("ip", "iproute2"), ("tc", "iproute2"), ("unshare", "util-linux"), ("nsenter", "util-linux")):
        if not shutil.which(tool):
            return f"no {tool} (Debian: {package})"
    if launcher and (reason := launchers.missing(launcher)):
        return reason
    try:
        with Cluster(nodes=1):
            return ""
    except (ClusterError, OSError) as error:
        return f"this machine cannot make a node: {error}"


def sweep():
    """Removes what killed runs left: directories whose lock nobody holds, so that neither maker nor any node lives."""
    with _registry():
        for directory in filter(pathlib.Path.is_dir, ROOT.iterdir()):
            if not _locked(directory):
                shutil.rmtree(directory)


def up_names():
    """The names of the clusters that are up."""
    sweep()
    return sorted(path.parent.name for path in ROOT.glob("*/state.json") if _locked(path.parent))


@contextlib.contextmanager
def _registry():
    """Held while directories are made or swept."""
    if os.geteuid() != 0:
        raise ClusterError(NOT_ROOT)
    ROOT.mkdir(mode=0o700, exist_ok=True)
    with open(ROOT / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _locked(directory):
    try:
        with open(directory / "lock") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:  # swept
        pass
    return False


def _wait_until_unlocked(directory):
    deadline = time.monotonic() + 5
    while _locked(directory):
        if time.monotonic() > deadline:
            raise ClusterError(f"processes of the cluster in {directory} will not end")
        time.sleep(0.01)


def leave_on_sigterm():
    """SIGTERM unwinds the stack, as SIGINT does, so that `with` blocks are left. Returns what undoes it."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        return lambda: None

    def leave(*_):
        raise SystemExit(128 + signal.SIGTERM)

    signal.signal(signal.SIGTERM, leave)
    return lambda: signal.signal(signal.SIGTERM, signal.SIG_DFL)


if __name__ == "__main__":
    import command

    command.main()
