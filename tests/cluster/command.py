"""The command line of cluster.py: a cluster that stays up while one tries things on it."""
import argparse
import subprocess
import sys
import time

import launchers
from cluster import Cluster, ClusterError, leave_on_sigterm, probe, up_names

CANNOT, OUT_OF_TIME, INTERRUPTED = 4, 124, 130


def main():
    options = arguments().parse_args()
    leave_on_sigterm()
    try:
        sys.exit(options.act(options))
    except ClusterError as error:
        print(f"cluster.py: {error}", file=sys.stderr)
        sys.exit(CANNOT)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def arguments():
    parser = argparse.ArgumentParser(prog="cluster.py", description="A cluster of network namespaces on this machine.")
    parser.add_argument("--name", default="default", help="which cluster, where several are up (default: %(default)s)")
    verbs = parser.add_subparsers(metavar="VERB", required=True)

    def verb(name, act, text):
        added = verbs.add_parser(name, help=text, description=text)
        added.set_defaults(act=act)
        return added

    added = verb("up", up, "make a cluster that stays until `down`")
    added.add_argument("-n", "--nodes", type=int, default=4, help="default: %(default)s")
    added.add_argument("--rate", default="1gbit", help="of each link, each way, as tc writes it (default: %(default)s)")
    verb("down", lambda options: Cluster.attach(options.name).down(), "end it and everything that runs on it")
    verb("status", status, "show the clusters that are up: nodes, rates, traffic")

    added = verb("run", run, "start ranks on it under MPI; what they print comes here, their errors with their number")
    added.add_argument("-g", "--ranks-per-node", type=int, default=1, help="default: %(default)s")
    added.add_argument("-n", "--nodes", type=int, help="use the first so many nodes (default: all)")
    added.add_argument("--launcher", choices=launchers.LAUNCHERS, default="openmpi", help="default: %(default)s")
    added.add_argument("--timeout", type=float, default=float("inf"), help="seconds until it is ended (default: never)")
    added.add_argument("--env", action="append", default=[], metavar="NAME=VALUE", help="for the ranks")
    added.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND...")

    added = verb("exec", execute, "run one command on a node, or on the head, without MPI")
    added.add_argument("node", help="n0, n1, ... or head")
    added.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND...")
    added = verb("rate", set_rate, "change the rate of a node's link, both ways, at once")
    added.add_argument("node", help="n0, n1, ...")
    added.add_argument("rate", help="as tc writes it: 100mbit, 2.5gbit")
    added = verb("cut", lambda options: on_node(options, Cluster.cut), "pull a node's cable")
    added.add_argument("node", help="n0, n1, ...")
    added = verb("restore", lambda options: on_node(options, Cluster.restore), "plug it in again")
    added.add_argument("node", help="n0, n1, ...")
    return parser


def up(options):
    if reason := probe(launcher=None):
        raise ClusterError(reason)
    Cluster(options.nodes, options.rate).up(options.name)
    print_status(options.name)


def status(_):
    names = up_names()
    for name in names:
        print_status(name)
    if not names:
        print("no cluster is up")


def print_status(name):
    cluster = Cluster.attach(name)
    print(f"cluster {name}, {len(cluster.nodes)} nodes")
    print("node  address      out Mbit/s  in Mbit/s      tx bytes      rx bytes")
    for node, (out, inward), traffic in zip(cluster.nodes, cluster.rates(), cluster.traffic()):
        print(f"{node.name:5} {node.address:11} {out / 1e6:11.0f} {inward / 1e6:10.0f} {traffic.tx_bytes:13} "
              f"{traffic.rx_bytes:13}")


def run(options):
    cluster = Cluster.attach(options.name)
    environment = dict(setting.split("=", 1) for setting in options.env)
    deadline = time.monotonic() + options.timeout
    with cluster.start(words(options), options.ranks_per_node, options.nodes, environment, options.launcher) as job:
        files = [Follower(job.directory / "stdout", sys.stdout), Follower(job.directory / "launcher.err", sys.stderr)]
        files += [Follower(job.directory / f"rank-{rank}.err", sys.stderr, f"[rank {rank}] ")
                  for rank in range(job.num_ranks)]
        while job.running() and time.monotonic() < deadline:
            time.sleep(0.05)
            for file in files:
                file.show()
        done = job.wait(timeout=0)
        for file in files:
            file.show(last=True)
    for process in done.leftovers:
        print(f"cluster.py: outlived the launcher, ended: {process}", file=sys.stderr)
    if done.code is None:
        print(f"cluster.py: ended after {done.seconds:.1f} s, out of time", file=sys.stderr)
        return OUT_OF_TIME
    return done.code if done.code >= 0 else 128 - done.code


class Follower:
    """Copies a growing file to a stream, whole lines with a prefix."""

    def __init__(self, path, stream, prefix=""):
        self._path, self._stream, self._prefix = path, stream, prefix
        self._shown, self._rest = 0, ""

    def show(self, last=False):
        if not self._path.exists():
            return
        with open(self._path, "rb") as file:
            file.seek(self._shown)
            new = file.read()
        self._shown += len(new)
        *lines, self._rest = (self._rest + new.decode(errors="replace")).split("\n")
        if last and self._rest:
            lines.append(self._rest)
        for line in lines:
            print(self._prefix + line, file=self._stream)
        self._stream.flush()


def execute(options):
    cluster = Cluster.attach(options.name)
    where = "head" if options.node == "head" else number(cluster, options.node)
    return subprocess.call(cluster.command(where, words(options)))


def words(options):
    """The command, without the `--` that may stand before it."""
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command:
        raise ClusterError("no command given")
    return command


def set_rate(options):
    on_node(options, lambda cluster, node: cluster.set_rate(node, options.rate))


def on_node(options, act):
    cluster = Cluster.attach(options.name)
    act(cluster, number(cluster, options.node))


def number(cluster, name):
    names = [node.name for node in cluster.nodes]
    if name not in names:
        raise ClusterError(f"no node {name}; there are {', '.join(names)}")
    return names.index(name)
