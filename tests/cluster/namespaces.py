"""Nodes as Linux namespaces, and what runs inside them.

A node is one process, its holder, in network, host-name, mount, IPC and PID namespaces of its own. The PID namespaces
of the nodes lie inside that of the head, so when the head's holder dies the kernel ends every process of the cluster,
and with the last process go namespaces, links and shapers. Nothing has a name outside of its own cluster.
"""
import os
import pathlib
import subprocess

HERE = pathlib.Path(__file__).resolve().parent
KINDS = ["--net", "--uts", "--mount", "--ipc", "--pid"]


class ClusterError(Exception):
    """What the machine would not do, and for which node."""


def start_holder(name, cluster_dir, lock, owner, parent=None):
    """Starts the holder of node `name` and returns (Popen, its process id on this machine).

    The holder ends when the other end of the pipe `owner` is closed, by whatever means; with None it stays until
    killed. It keeps the descriptor `lock` open, and the lock with it. `parent` is the holder whose PID namespace
    contains this one's.
    """
    keep = ["sleep", "infinity"] if owner is None else ["cat"]
    argv = ["unshare", *KINDS, "--fork", "--kill-child", "sh", str(HERE / "node.sh"), name, str(cluster_dir), *keep]
    if parent is not None:
        argv = ["nsenter", "--target", str(parent), "--pid", "--", *argv]
    process = subprocess.Popen(argv, stdin=subprocess.DEVNULL if owner is None else owner, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True, pass_fds=[lock], start_new_session=True)
    try:
        answer = process.stdout.readline().strip()
        if answer.isdigit():
            return process, int(answer)
        raise ClusterError(f"node {name}: {answer or 'its holder ended'}")
    except BaseException:
        process.kill()
        process.wait()
        raise
    finally:
        process.stdout.close()


def enter(pid, argv, directory):
    """The command line that runs `argv` in `directory` inside the node that process `pid` holds."""
    return ["nsenter", "--target", str(pid), *KINDS, "--", "sh", "-c", 'cd "$1" && shift && exec "$@"', "sh",
            str(directory), *[str(word) for word in argv]]


def network(pid, tool, lines):
    """Gives `lines` to `ip` or `tc` in the network namespace of process `pid`; returns what it printed."""
    done = subprocess.run(["nsenter", "--target", str(pid), "--net", "--", tool, "-json", "-batch", "-"],
                          input="\n".join(lines), capture_output=True, text=True)
    if done.returncode != 0:
        raise ClusterError(f"{tool}: {' '.join(done.stderr.split())} (of: {'; '.join(lines)})")
    return done.stdout


def network_id(pid):
    """What tells the network namespace of a process from all others; None when the process is gone."""
    try:
        return os.readlink(f"/proc/{pid}/ns/net")
    except OSError:
        return None


def children(pid):
    """The processes that `pid` started and that still run."""
    return [other for other in process_ids() if parent(other) == pid]


def parent(pid):
    try:
        return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, IndexError):
        return None


def process_ids():
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]


def id_in_parent(pid):
    """The id of a holder as the PID namespace around its own sees it."""
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("NSpid:"):
            return int(line.split()[-2])
    raise ClusterError("this kernel does not tell process ids in namespaces (NSpid in /proc/PID/status)")
