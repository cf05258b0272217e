"""A link slowed on a cluster: the bill names its node and by how much, and a running job chooses again."""
import json
import pathlib
import sys
import tempfile
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
        command = bench("--machine", self.machine, "--steps", "1000", "--warmup", "1", "--latency-limit", "300")
        choice = r"after step (\d+): exchange (\S+), because (.*)\n"
        with self.cluster.start(command, ranks_per_node=RANKS_PER_NODE) as job:
            first = job.wait_for_matches(choice, 1, timeout=30)[0]
            self.assertEqual(first[:2], ("1", "two-level"))
            self.cluster.set_rate(SLOW, "100mbit")
            second = job.wait_for_matches(choice, 2, timeout=60)[1]
        self.assertIn("beyond the limit of 300 ms", second[2])

    def test_a_link_that_slows_down_meanwhile_leaves_predictions_and_roofs(self):
        self.cluster.set_rate(SLOW, "100mbit")
        bill = self.bill("--machine", self.machine, "--steps", "9", "--latency-limit", "300")
        self.assertTrue(bill["choices"], bill)
        for exchange in bill["exchanges"]:
            if exchange["name"] in ("dispatch", "combine"):
                self.assertGreater(exchange["predicted_us"], 0, exchange)
                self.assertGreater(exchange["roof_gbs"], 0, exchange)
        self.assertGreater(bill["links"][SLOW]["slowdown"], FACTOR / 2)


testing.main()
