"""The command lines and settings of the MPI launchers.

Both start their daemons through agent.sh, and ranks through rank.sh. Ranks of one node share memory, others use TCP
over eth0; nothing is bound, because nodes share the machine's cores. Rank r runs on node r // ranks_per_node.
"""
import dataclasses
import shutil
import subprocess
import typing

from namespaces import HERE

AGENT = str(HERE / "agent.sh")


def open_mpi(hosts, ranks_per_node):
    argv = ["--host", ",".join(f"{host}:{ranks_per_node}" for host in hosts), "-n", str(len(hosts) * ranks_per_node)]
    return [*argv, "--map-by", f"ppr:{ranks_per_node}:node", "--oversubscribe", "--bind-to", "none"]


OPEN_MPI_SETTINGS = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_plm_rsh_agent": AGENT,
    "OMPI_MCA_plm_rsh_no_tree_spawn": "1",  # the agent starts from the head only
    "OMPI_MCA_oob_tcp_if_include": "eth0",
    "OMPI_MCA_pml": "ob1",
    "OMPI_MCA_btl": "vader,tcp,self",
    "OMPI_MCA_btl_tcp_if_include": "eth0",
    "OMPI_MCA_mpi_yield_when_idle": "1",
    # The same in Open MPI 5, whose launcher is PRRTE.
    "PRTE_ALLOW_RUN_AS_ROOT": "1",
    "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_plm_ssh_agent": AGENT,
    "PRTE_MCA_plm_ssh_no_tree_spawn": "1",
    "PRTE_MCA_prte_if_include": "eth0",
}


def mpich(hosts, ranks_per_node):
    argv = ["-hosts", ",".join(f"{host}:{ranks_per_node}" for host in hosts), "-n", str(len(hosts) * ranks_per_node)]
    return [*argv, "-ppn", str(ranks_per_node), "-bind-to", "none"]


MPICH_SETTINGS = {
    "HYDRA_LAUNCHER": "ssh",
    "HYDRA_LAUNCHER_EXEC": AGENT,
    "HYDRA_IFACE": "eth0",
    # Left to itself UCX looks for memory that all nodes share, and finds it where they are one machine.
    "UCX_TLS": "tcp,self",
    "UCX_NET_DEVICES": "eth0",
}


@dataclasses.dataclass(frozen=True)
class Launcher:
    arguments: typing.Callable  # (hosts, ranks per node) -> words
    settings: dict  # environment variables
    programs: list  # names to look for
    word: str  # in what --version prints
    package: str  # Debian's


LAUNCHERS = {
    "openmpi": Launcher(open_mpi, OPEN_MPI_SETTINGS, ["mpirun.openmpi", "mpirun"], "Open MPI", "openmpi-bin"),
    "mpich": Launcher(mpich, MPICH_SETTINGS, ["mpiexec.mpich", "mpiexec.hydra", "mpiexec"], "HYDRA", "mpich"),
}


def find(name):
    """The path of a launcher's program, or None."""
    for path in filter(None, map(shutil.which, LAUNCHERS[name].programs)):
        version = subprocess.run([path, "--version"], capture_output=True, text=True)
        if LAUNCHERS[name].word in version.stdout:
            return path
    return None


def missing(name):
    """Why a launcher cannot be used, in a line; empty when it can."""
    if find(name):
        return ""
    return f"no launcher of {name}: none of {', '.join(LAUNCHERS[name].programs)} (Debian: {LAUNCHERS[name].package})"


def command(name, hosts, ranks_per_node, extra, argv):
    return [find(name), *LAUNCHERS[name].arguments(hosts, ranks_per_node), *extra, str(HERE / "rank.sh"), *argv]
