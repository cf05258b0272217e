"""MPICH as the launcher: ranks on their nodes, over the link and not through memory that the nodes would share.

usage: selftest_mpich.py [RANKS_PROGRAM, built with MPICH]
"""
import sys
import unittest

import testing
from cluster import Cluster

RANKS = sys.argv[1] if len(sys.argv) > 1 else None


class Mpich(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = cls.enterClassContext(Cluster(nodes=4, rate="1gbit"))

    def test_ranks_start_on_their_nodes(self):
        done = self.cluster.run(["sh", "-c", 'echo "$PMI_RANK $(hostname)"; echo "$PMI_RANK" >&2'], ranks_per_node=2,
                                launcher="mpich", timeout=30)
        self.assertEqual(done.code, 0, done)
        self.assertEqual(sorted(done.stdout.splitlines()), [f"{rank} n{rank // 2}" for rank in range(8)], done)
        self.assertEqual(done.stderr, [f"{rank}\n" for rank in range(8)], done)
        self.assertEqual(done.leftovers, [], done)

    def test_a_killed_launcher_leaves_nothing(self):
        with self.cluster.start(["sleep", 60], ranks_per_node=2, launcher="mpich") as job:
            job.wait_for_ranks(10)
            job.kill_launcher()
            job.wait(timeout=10)
        self.assertEqual(self.cluster.processes(), [])

    @unittest.skipUnless(RANKS, "no mpicxx.mpich when this was built (Debian: libmpich-dev)")
    def test_bytes_between_nodes_cross_the_link(self):
        num_bytes = 4_000_000
        before = self.cluster.traffic()
        # Two ranks, as MPICH spins. MPICH 4.0 may hang in MPI_Finalize over TCP, so the exit code is left out.
        done = self.cluster.run([RANKS, num_bytes], nodes=2, launcher="mpich", timeout=5)
        self.assertEqual(sorted(done.stdout.splitlines()),
                         [f"rank {rank} of 2 on n{rank}, 1 share memory, sum 1" for rank in range(2)], done)
        for node in range(2):
            sent = (self.cluster.traffic()[node] - before[node]).tx_bytes
            self.assertGreater(sent, num_bytes, done)
            self.assertLess(sent, 1.1 * num_bytes, done)


if __name__ == "__main__":
    testing.main("mpich")
