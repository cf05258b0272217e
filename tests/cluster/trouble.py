"""moetax bench on a cluster where something goes wrong: who, where and at what is said, and every rank ends in time."""
import signal
import sys
import time
import unittest

import testing
from cluster import Cluster

MOETAX = sys.argv[1]
NODES, RANKS_PER_NODE = 3, 2
DEADLINE_S = 4
SLACK_S = 2  # after the deadline ranks are gone
BUSY_S = 4  # what a busy machine may take on top


def bench(*more):
    return [MOETAX, "bench", "--hidden", "256", "--inter", "64", "--experts", "24", "--topk", "4", "--tokens", "64",
            "--steps", "1000000", "--threads", "1", "--deadline", str(DEADLINE_S), *more]


class Trouble(unittest.TestCase):
    def setUp(self):
        self.cluster = self.enterContext(Cluster(nodes=NODES, rate="1gbit"))

    def start(self, *more, **options):
        job = self.enterContext(self.cluster.start(bench(*more), ranks_per_node=RANKS_PER_NODE, **options))
        job.wait_for_ranks(30)
        time.sleep(2)  # into the steps
        return job

    def assert_ranks_end(self, job, seconds, but=0):
        start = time.monotonic()
        while len(job.ranks()) > but and time.monotonic() - start < seconds + 20:
            time.sleep(0.05)
        self.assertLess(time.monotonic() - start, seconds + BUSY_S)

    def said(self, done):
        """The one line that the user gets, by rank 0."""
        lines = [line for line in done.stderr[0].splitlines() if line.startswith("moetax: rank")]
        self.assertEqual(len(lines), 1, done)
        return lines[0]

    def test_a_rank_that_never_arrives_is_named_with_its_node_and_exchange(self):
        with self.cluster.start(bench("--delay", "5:600000"), ranks_per_node=RANKS_PER_NODE) as job:
            done = job.wait(timeout=60, grace=5)
        self.assertEqual(done.code, 5, done)
        self.assertRegex(self.said(done), r"rank 5 \(node 2, host n2\) did not arrive at dispatch #\d+ within 4 s")
        self.assertEqual([left for left in done.leftovers if left.rank is not None], [], done)

    def test_a_cut_link_ends_the_ranks_on_both_sides_with_the_exchange_and_whom_they_missed(self):
        job = self.start()
        self.cluster.cut(1)
        self.assert_ranks_end(job, DEADLINE_S + SLACK_S)
        self.cluster.restore(1)
        done = job.wait(timeout=60, grace=15)
        self.assertRegex("\n".join(done.stderr), r"ranks? [\d, -]+(\(node \d, host n\d\) )?did not arrive at \S+ #\d+")

    def test_a_killed_rank_is_named_on_all_nodes_where_they_live_on(self):
        job = self.start("--deadline", "60", launcher_args=["--enable-recovery"])
        job.kill(3)
        self.assert_ranks_end(job, 5)  # long before the deadline: its neighbour saw it, and told the other nodes
        done = job.wait(timeout=60, grace=15)
        self.assertRegex(self.said(done), r"rank 3 \(node 1, host n1\) ended without a word")

    def test_a_killed_rank_ends_the_others_and_something_is_said_of_it(self):
        job = self.start("--deadline", "60")
        job.kill(3)
        self.assert_ranks_end(job, 5)
        done = job.wait(timeout=60, grace=15)
        self.assertNotEqual(done.code, 0, done)
        self.assertRegex("\n".join(done.stderr), r"ended without a word|ended by SIGTERM: rank \d", done)

    def test_a_stopped_rank_is_named_by_the_deadline(self):
        job = self.start()
        job.kill(4, signal.SIGSTOP)
        self.assert_ranks_end(job, DEADLINE_S + SLACK_S, but=1)
        done = job.wait(timeout=40, grace=10)
        self.assertRegex(self.said(done), r"rank 4 \(node 2, host n2\) did not arrive at \S+ #\d+")

    def test_ranks_end_with_a_launcher_that_was_killed(self):
        job = self.start()
        job.kill_launcher()
        self.assert_ranks_end(job, DEADLINE_S + SLACK_S)


testing.main()
