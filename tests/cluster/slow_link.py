"""A link slowed on a cluster: the bill names its node and by how much, and a running job chooses again."""
import json
import pathlib
import re
import sys
import tempfile
import time
import unittest

import testing
from cluster import Cluster

MOETAX = sys.argv[1]
NODES, RANKS_PER_NODE, SLOW = 4, 2, 2
FACTOR = 10


def bench(*more):
    return [MOETAX, "bench", "--hidden", "2048", "--inter", "32", "--experts", "64", "--topk", "6", "--tokens", "256",
            "--threads", "1", *more]


class SlowLink(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = cls.enterClassContext(Cluster(nodes=NODES, rate="1gbit"))
        directory = cls.enterClassContext(tempfile.TemporaryDirectory())
        cls.machine = str(pathlib.Path(directory) / "machine.json")
        done = cls.cluster.run([MOETAX, "calibrate", "--out", cls.machine], ranks_per_node=RANKS_PER_NODE, timeout=120)
        assert done.code == 0, done

    def setUp(self):
        self.addCleanup(self.cluster.set_rate, SLOW, "1gbit")

    def bill(self, *more):
        done = self.cluster.run(bench("--json", "-", "--steps", "3", "--warmup", "1", *more),
                                ranks_per_node=RANKS_PER_NODE, timeout=90)
        self.assertEqual(done.code, 0, done)
        return json.loads(done.stdout)

    def test_no_link_is_slow_where_none_is(self):
        bill = self.bill("--exchange", "two-level", "--machine", self.machine)
        self.assertEqual([link["slow"] for link in bill["links"]], [False] * NODES)

    def test_the_bill_names_the_node_and_the_factor(self):
        self.cluster.set_rate(SLOW, "100mbit")
        for exchange in ("flat", "direct", "two-level"):
            with self.subTest(exchange):
                bill = self.bill("--exchange", exchange, "--machine", self.machine)
                self.assertEqual([link["node"] for link in bill["links"] if link["slow"]], [SLOW], bill["links"])
                slowdown = bill["links"][SLOW]["slowdown"]
                self.assertAlmostEqual(slowdown / FACTOR, 1, delta=0.15, msg=bill["links"])
                first = bill["findings"][0]
                self.assertEqual(first["id"], "slow-link", first)
                self.assertIn(f"node {SLOW} (n{SLOW})", first["title"])

    def test_without_costs_the_node_is_named(self):
        self.cluster.set_rate(SLOW, "100mbit")
        first = self.bill("--exchange", "flat")["findings"][0]
        self.assertEqual(first["title"], f"the link of node {SLOW} (n{SLOW}) is slower than those of the others")

    def test_a_running_job_chooses_again(self):
        command = bench("--machine", self.machine, "--steps", "60", "--warmup", "1", "--latency-limit", "300")
        with self.cluster.start(command, ranks_per_node=RANKS_PER_NODE) as job:
            time.sleep(5)  # some 40 steps of 100 ms
            self.cluster.set_rate(SLOW, "100mbit")
            done = job.wait(120)
        self.assertEqual(done.code, 0, done)
        choices = re.findall(r"after step (\d+): exchange (\S+), because (.*)", str(done))
        self.assertEqual(choices[0][:2], ("1", "two-level"), choices)
        self.assertGreater(len(choices), 1, done)
        self.assertIn("beyond the limit of 300 ms", choices[1][2])


testing.main()
