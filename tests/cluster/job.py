"""One start of a program on a cluster: its ranks while they run, and what is left when it has ended."""
import dataclasses
import os
import pathlib
import re
import signal
import subprocess
import time

import namespaces

TAG = "MOETAX_CLUSTER_JOB"  # in the environment of every process of a job: the job's directory
RANK = ("OMPI_COMM_WORLD_RANK", "PMI_RANK")
POLL_S = 0.02


@dataclasses.dataclass(frozen=True)
class Process:
    pid: int
    rank: int | None  # None: the launcher, its daemons and agents
    command: str

    def __str__(self):
        role = "" if self.rank is None else f"rank {self.rank}, "
        return f"{self.command} ({role}pid {self.pid})"


@dataclasses.dataclass(frozen=True)
class Finished:
    """What a job left. `str()` of it says everything, for the message of a failed assertion."""
    code: int | None  # of the launcher, negative: the signal that ended it; None: ended by the harness, out of time
    seconds: float
    stdout: str
    launcher_stderr: str
    stderr: list[str]  # by rank
    leftovers: list[Process]  # what outlived the launcher by more than the grace, and was then ended by the harness
    directory: pathlib.Path  # the same as files: stdout, launcher.err, rank-N.err

    def __str__(self):
        end = "ran out of time" if self.code is None else f"exit code {self.code}"
        lines = [f"{end} after {self.seconds:.1f} s"]
        texts = {"stdout": self.stdout, "launcher": self.launcher_stderr}
        texts |= {f"rank {rank}": text for rank, text in enumerate(self.stderr)}
        lines += [f"[{source}] {line}" for source, text in texts.items() for line in text.splitlines()]
        lines += [f"outlived the launcher: {process}" for process in self.leftovers]
        return "\n".join(lines)


class Job:
    """A running job. Leaving its `with` block ends whatever of it still runs."""

    def __init__(self, launch, environment, directory, num_ranks):
        self.directory = directory
        self.num_ranks = num_ranks
        self._started = time.monotonic()
        with open(directory / "stdout", "wb") as out, open(directory / "launcher.err", "wb") as err:
            self._entered = subprocess.Popen(launch, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                             env=environment, start_new_session=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()

    def processes(self):
        """Everything of the job that runs: launcher, daemons, ranks and what these started."""
        mine = f"{TAG}={self.directory}".encode()
        found = []
        for pid in namespaces.process_ids():
            environment = _read(pid, "environ").split(b"\0")
            if mine in environment:
                command = _read(pid, "cmdline").replace(b"\0", b" ").decode(errors="replace").strip()
                found.append(Process(pid, _rank_of(environment), command))
        return found

    def ranks(self):
        """{rank: process id on this machine} of the ranks that run."""
        processes = {process.pid: process for process in self.processes() if process.rank is not None}
        return {process.rank: pid for pid, process in sorted(processes.items(), reverse=True)
                if namespaces.parent(pid) not in processes}

    def running(self):
        """Whether the launcher runs."""
        return self._entered.poll() is None

    def wait_for_ranks(self, timeout):
        """Returns `ranks()` as soon as all have started, or fails after `timeout` seconds."""
        return self._until(lambda ranks: len(ranks) == self.num_ranks, timeout, "start")

    def wait_for_no_rank(self, timeout):
        """Returns once no rank runs, or fails after `timeout` seconds. The launcher may go on."""
        self._until(lambda ranks: not ranks, timeout, "end")

    def wait_for_matches(self, pattern, count, timeout, rank=0):
        """Returns all matches of `pattern` in what a rank has written to standard error, once there are `count`."""
        end = time.monotonic() + timeout
        while True:
            matches = re.findall(pattern, _text(self.directory / f"rank-{rank}.err"))
            if len(matches) >= count:
                return matches
            if time.monotonic() > end or not self.running():
                raise AssertionError(f"{len(matches)} of {count} matches of {pattern!r}: {matches}")
            time.sleep(POLL_S)

    def kill(self, rank, number=signal.SIGKILL):
        """Sends a signal to one rank."""
        os.kill(self.ranks()[rank], number)

    def kill_launcher(self, number=signal.SIGKILL):
        """Sends a signal to mpirun or mpiexec, and to nothing else."""
        for pid in namespaces.children(self._entered.pid):
            _kill(pid, number)

    def wait(self, timeout, grace=2.0):
        """Waits for the launcher, at most `timeout` seconds, then for all it started, at most `grace` seconds.

        Ends what is left and returns what the job did.
        """
        try:
            code = self._entered.wait(max(0.0, timeout - (time.monotonic() - self._started)))
        except subprocess.TimeoutExpired:
            code = None
        seconds = time.monotonic() - self._started
        leftovers = [] if code is None else self._outlive(grace)
        self.end()
        ranks = [_text(self.directory / f"rank-{rank}.err") for rank in range(self.num_ranks)]
        return Finished(code, seconds, _text(self.directory / "stdout"), _text(self.directory / "launcher.err"), ranks,
                        leftovers, self.directory)

    def end(self):
        """Ends every process of the job at once."""
        deadline = time.monotonic() + 5
        while left := self.processes():
            for process in left:
                _kill(process.pid, signal.SIGKILL)
            if time.monotonic() > deadline:
                raise namespaces.ClusterError(f"will not end: {', '.join(map(str, left))}")
            time.sleep(POLL_S)
        self._entered.wait()

    def _outlive(self, grace):
        deadline = time.monotonic() + grace
        while (left := self.processes()) and time.monotonic() < deadline:
            time.sleep(POLL_S)
        return left

    def _until(self, condition, timeout, verb):
        deadline = time.monotonic() + timeout
        while not condition(ranks := self.ranks()):
            if time.monotonic() > deadline:
                raise namespaces.ClusterError(f"ranks did not {verb} within {timeout} s; {sorted(ranks)} run")
            time.sleep(POLL_S)
        return ranks


def _rank_of(environment):
    for entry in environment:
        name, _, value = entry.decode(errors="replace").partition("=")
        if name in RANK:
            return int(value)
    return None


def _read(pid, name):
    try:
        return pathlib.Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def _text(path):
    return path.read_text(errors="replace") if path.exists() else ""


def _kill(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass
