"""moetax on a cluster: every bit and byte of an exchange between nodes, slow links, and ranks that die."""
import json
import sys
import unittest

import testing
from cluster import Cluster

MOETAX = sys.argv[1]
NODES, RANKS_PER_NODE = 4, 2
RANKS = NODES * RANKS_PER_NODE


def bench(*more):
    return [MOETAX, "bench", "--hidden", "512", "--inter", "64", "--experts", "32", "--topk", "4", "--tokens", "128",
            "--steps", "4", "--warmup", "1", "--threads", "1", "--json", "-", *more]


class Exchange(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = cls.enterClassContext(Cluster(nodes=NODES, rate="1gbit"))

    def bill(self, *more):
        done = self.cluster.run(bench(*more), ranks_per_node=RANKS_PER_NODE, timeout=90)
        self.assertEqual(done.code, 0, done)
        return json.loads(done.stdout)

    def local_bill(self, *more):
        done = self.cluster.run(bench("--ranks", str(RANKS), *more), nodes=[0], ranks_per_node=1, timeout=90)
        self.assertEqual(done.code, 0, done)
        return json.loads(done.stdout)
