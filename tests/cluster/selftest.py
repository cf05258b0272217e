"""Holds the cluster to what it promises: rates, cuts, ranks, and nothing left behind.

usage: selftest.py RANKS_PROGRAM
"""
import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import unittest

import cluster as cluster_module
import namespaces
import testing
from cluster import Cluster, ClusterError

RANKS = sys.argv[1]
HERE = pathlib.Path(__file__).resolve().parent
GIGABIT, TENTH = 1e9, 1e8


def stream(*words):
    return [sys.executable, HERE / "stream.py", *words]


def wait_until(condition, timeout):
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def alive(pids):
    return [pid for pid in pids if namespaces.network_id(pid)]


class OneCluster(unittest.TestCase):
    """What a cluster does while it is up. The tests share one."""

    @classmethod
    def setUpClass(cls):
        cls.cluster = cls.enterClassContext(Cluster(nodes=4, rate="1gbit"))

    def tearDown(self):
        for process in self.cluster.processes():
            self.fail(f"a process is left on a node: {pathlib.Path(f'/proc/{process}/cmdline').read_bytes()}")

    def bits_per_second(self, sender, receiver, num_bytes):
        cluster = self.cluster
        with subprocess.Popen(cluster.command(receiver, stream("receive")), stdout=subprocess.PIPE) as receiving:
            send = stream("send", cluster.nodes[receiver].name, num_bytes)
            subprocess.run(cluster.command(sender, send), check=True, timeout=30)
            result = json.loads(receiving.communicate(timeout=30)[0])
        self.assertEqual(result["bytes"], num_bytes)
        return 8 * num_bytes / result["seconds"]

    def hold_to(self, rate, sender, receiver, num_bytes):
        """A busy machine may slow a stream, so the best of three counts; no stream may be faster than its link."""
        best = 0.0
        for _ in range(3):
            measured = self.bits_per_second(sender, receiver, num_bytes)
            self.assertLessEqual(measured, 1.1 * rate)
            best = max(best, measured)
            if best >= 0.8 * rate:
                break
        print(f"n{sender} to n{receiver}: {best / 1e6:.0f} Mbit/s of {rate / 1e6:.0f}", file=sys.stderr)
        self.assertGreaterEqual(best, 0.8 * rate)

    @contextlib.contextmanager
    def endless_stream(self, sender, receiver):
        cluster = self.cluster
        with subprocess.Popen(cluster.command(receiver, stream("receive")), stdout=subprocess.DEVNULL) as receiving, \
                subprocess.Popen(cluster.command(sender, stream("send", f"n{receiver}", 0)),
                                 stderr=subprocess.DEVNULL) as sending:
            try:
                yield
            finally:
                for process in (sending, receiving):
                    for inner in namespaces.children(process.pid):
                        os.kill(inner, signal.SIGKILL)

    def received(self, node, seconds):
        before = self.cluster.traffic()[node].rx_bytes
        time.sleep(seconds)
        return self.cluster.traffic()[node].rx_bytes - before

    def test_links_have_their_rate_in_both_directions(self):
        self.hold_to(GIGABIT, 0, 1, 50_000_000)
        self.hold_to(GIGABIT, 1, 0, 50_000_000)

    def test_a_slowed_link_is_slow_in_both_directions_until_it_is_set_back(self):
        self.cluster.set_rate(1, "100mbit")
        self.assertEqual(self.cluster.rates()[1], (TENTH, TENTH))
        self.hold_to(TENTH, 0, 1, 10_000_000)
        self.hold_to(TENTH, 1, 0, 10_000_000)
        self.hold_to(GIGABIT, 0, 2, 50_000_000)
        self.cluster.set_rate(1, "1gbit")
        self.hold_to(GIGABIT, 0, 1, 50_000_000)

    def test_a_rate_changes_under_a_running_stream(self):
        with self.endless_stream(2, 3):
            self.assertTrue(wait_until(lambda: self.received(3, 0.3) * 8 > 0.3 * 0.6 * GIGABIT, 10))
            self.cluster.set_rate(3, "100mbit")
            time.sleep(0.3)
            self.assertLess(self.received(3, 0.5) * 8, 0.5 * 1.3 * TENTH)
            self.cluster.set_rate(3, "1gbit")
            self.assertTrue(wait_until(lambda: self.received(3, 0.3) * 8 > 0.3 * 0.6 * GIGABIT, 10))

    def test_a_cut_link_stalls_and_a_restored_one_resumes(self):
        with self.endless_stream(0, 1):
            self.assertTrue(wait_until(lambda: self.received(1, 0.1) > 1_000_000, 10))
            self.cluster.cut(1)
            self.assertEqual(self.received(1, 0.5), 0)
            self.cluster.restore(1)
            self.assertTrue(wait_until(lambda: self.received(1, 0.1) > 1_000_000, 10))

    def test_ranks_share_memory_on_a_node_and_the_link_between_nodes(self):
        num_bytes = 4_000_000
        before = self.cluster.traffic()
        done = self.cluster.run([RANKS, num_bytes], ranks_per_node=2, timeout=30)
        sent = [after - start for after, start in zip(self.cluster.traffic(), before)]
        self.assertEqual(done.code, 0, done)
        self.assertEqual(sorted(done.stdout.splitlines()),
                         [f"rank {rank} of 8 on n{rank // 2}, 2 share memory, sum 28" for rank in range(8)], done)
        self.assertEqual(done.stderr, [f"rank {rank} was here\n" for rank in range(8)], done)
        self.assertEqual(done.leftovers, [], done)
        # Of a node's two messages, one to each right neighbour, one leaves it.
        for traffic in sent:
            for count in (traffic.tx_bytes, traffic.rx_bytes):
                self.assertGreater(count, num_bytes)
                self.assertLess(count, 1.1 * num_bytes)

    def test_ranks_see_the_environment_that_they_were_given_and_no_other(self):
        os.environ["MOETAX_CLUSTER_STRAY"] = "1"
        done = self.cluster.run(["sh", "-c", 'echo "$GIVEN,$MOETAX_CLUSTER_STRAY,$PWD"'], nodes=2, timeout=30,
                                env={"GIVEN": "a b"})
        del os.environ["MOETAX_CLUSTER_STRAY"]
        self.assertEqual(done.stdout, 2 * f"a b,,{os.getcwd()}\n", done)

    def test_the_exit_code_of_a_rank_is_that_of_the_run(self):
        done = self.cluster.run(["sh", "-c", 'echo sorry >&2; exit $((3 * OMPI_COMM_WORLD_RANK))'], nodes=2, timeout=30)
        self.assertEqual((done.code, done.stderr[1]), (3, "sorry\n"), done)

    def test_a_run_out_of_time_is_ended(self):
        done = self.cluster.run(["sh", "-c", "echo late >&2; sleep 60"], nodes=2, ranks_per_node=2, timeout=3)
        self.assertIsNone(done.code)
        self.assertEqual(done.stderr, 4 * ["late\n"], done)

    def test_a_rank_can_be_killed(self):
        with self.cluster.start(["sleep", 60], nodes=2, ranks_per_node=2) as job:
            self.assertEqual(sorted(job.wait_for_ranks(10)), [0, 1, 2, 3])
            job.kill(3)
            done = job.wait(timeout=20)
        self.assertNotIn(done.code, (0, None), done)

    def test_what_outlives_a_killed_launcher_is_named_and_ended(self):
        # The ranks ignore what the launcher's daemons send when they see it gone.
        with self.cluster.start(["sh", "-c", "trap '' TERM HUP; sleep 60 & wait; wait"], nodes=2) as job:
            ranks = job.wait_for_ranks(10)
            job.kill_launcher()
            done = job.wait(timeout=10, grace=0)
        self.assertEqual(done.code, -signal.SIGKILL)
        self.assertTrue(done.leftovers, done)
        self.assertEqual(alive(ranks.values()), [])


class Teardown(unittest.TestCase):
    """Nothing is left of a cluster, whatever ends it."""

    def assert_gone(self, pids, networks, directory):
        self.assertTrue(wait_until(lambda: not alive(pids), 5), f"alive: {alive(pids)}")
        # The programs that started the holders end a moment after them.
        self.assertTrue(wait_until(lambda: not self.networks_in_use() & set(networks), 5), "a namespace is left")
        self.assertTrue(wait_until(lambda: self.swept(directory), 5), f"{directory} is left")

    @staticmethod
    def networks_in_use():
        return {namespaces.network_id(pid) for pid in namespaces.process_ids()}

    @staticmethod
    def swept(directory):
        cluster_module.sweep()
        return not directory.exists()

    @staticmethod
    def links():
        return re.findall(r"^\d+: (\S+):", subprocess.run(["ip", "-o", "link"], capture_output=True, text=True).stdout,
                          re.MULTILINE)

    def test_leaving_the_block_ends_everything(self):
        links = self.links()
        with Cluster(nodes=4) as cluster, Cluster(nodes=2) as beside:
            cluster.start(["sleep", 60], ranks_per_node=2).wait_for_ranks(10)
            beside.start(["sleep", 60]).wait_for_ranks(10)
            pids, networks, directory = self.everything(cluster)
            self.assertEqual(self.links(), links)
        self.assertFalse(directory.exists())
        self.assert_gone(pids, networks, directory)

    @staticmethod
    def everything(cluster):
        holders = [cluster.head.pid, *[node.pid for node in cluster.nodes]]
        return [*holders, *cluster.processes()], [namespaces.network_id(pid) for pid in holders], cluster.directory

    def test_nothing_outlives_a_killed_owner(self):
        for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT):
            with self.subTest(signal=number.name):
                owner = subprocess.Popen([sys.executable, HERE / "selftest.py", RANKS, "own"], stdout=subprocess.PIPE,
                                         stderr=subprocess.DEVNULL, text=True)
                pids, networks, directory = json.loads(owner.stdout.readline())
                self.assertEqual(len(alive(pids)), len(pids))
                owner.send_signal(number)
                owner.communicate(timeout=10)
                self.assertEqual(pathlib.Path(directory).exists(), number == signal.SIGKILL)
                self.assert_gone(pids, networks, pathlib.Path(directory))

    def test_a_cluster_stays_up_for_others_until_it_is_taken_down(self):
        name = f"selftest-{os.getpid()}"
        self.addCleanup(self.command_line, name, "down")
        self.assertIn("2 nodes", self.command_line(name, "up", "-n", "2").stdout)
        self.assertIn(f"a cluster named {name} is up already", self.command_line(name, "up").stderr)
        done = self.command_line(name, "run", "-g", "2", "--", "sh", "-c", "hostname; hostname >&2")
        self.assertEqual((sorted(done.stdout.split()), done.returncode), (["n0", "n0", "n1", "n1"], 0), done)
        self.assertIn("[rank 2] n1\n", done.stderr)
        self.command_line(name, "rate", "n1", "100mbit")
        self.command_line(name, "cut", "n1")
        cluster = Cluster.attach(name)
        self.assertEqual(cluster.rates(), [(GIGABIT, GIGABIT), (TENTH, TENTH)])
        done = self.command_line(name, "exec", "n1", "sh", "-c", "hostname; exit 3")
        self.assertEqual((done.stdout, done.returncode), ("n1\n", 3), done)
        pids, networks, directory = self.everything(cluster)
        self.command_line(name, "down")
        self.assert_gone(pids, networks, directory)
        self.assertIn(f"no cluster named {name} is up", self.command_line(name, "down").stderr)

    @staticmethod
    def command_line(name, *words):
        return subprocess.run([sys.executable, HERE / "cluster.py", "--name", name, *words], capture_output=True,
                              text=True, timeout=30)

    def test_a_cluster_that_cannot_be_built_says_why_and_leaves_nothing(self):
        before = set(cluster_module.ROOT.iterdir())
        with self.assertRaisesRegex(ClusterError, "tc: .*fast"):
            with Cluster(nodes=2, rate="fast"):
                pass
        self.assertEqual(set(cluster_module.ROOT.iterdir()), before)


def own():
    """The process that test_nothing_outlives_a_killed_owner ends."""
    with Cluster(nodes=2) as cluster:
        cluster.start(["sleep", 60], ranks_per_node=2).wait_for_ranks(10)
        pids, networks, directory = Teardown.everything(cluster)
        print(json.dumps([pids, networks, str(directory)]), flush=True)
        time.sleep(60)


if __name__ == "__main__":
    own() if "own" in sys.argv else testing.main()
