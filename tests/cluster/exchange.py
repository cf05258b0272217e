"""moetax bench on a cluster: every bit and byte of an exchange between nodes, and ranks that die or never answer."""
import json
import subprocess
import sys
import time
import unittest

import testing
from cluster import Cluster

MOETAX = sys.argv[1]
NODES, RANKS_PER_NODE = 4, 2
RANKS = NODES * RANKS_PER_NODE
STEPS, WARMUP = 3, 1


def bench(*more):
    return [MOETAX, "bench", "--hidden", "512", "--inter", "64", "--experts", "32", "--topk", "4", "--tokens", "256",
            "--steps", str(STEPS), "--warmup", str(WARMUP), "--threads", "1", *more]


class Exchange(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = cls.enterClassContext(Cluster(nodes=NODES, rate="1gbit"))

    def bill(self, *more):
        done = self.cluster.run(bench("--json", "-", *more), ranks_per_node=RANKS_PER_NODE, timeout=90)
        self.assertEqual(done.code, 0, done)
        return json.loads(done.stdout)

    def local_bill(self, *more):
        command = self.cluster.command(0, bench("--json", "-", "--ranks", str(RANKS), *more))
        done = subprocess.run(command, capture_output=True, text=True, timeout=90)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_bits_are_those_of_one_machine(self):
        local = self.local_bill()["output_hash"]
        for exchange in ("flat", "direct", "ring", "mesh2d"):
            with self.subTest(exchange):
                bill = self.bill("--exchange", exchange)
                self.assertEqual(bill["output_hash"], local)
                self.assertEqual(bill["config"]["nodes"], NODES)
                self.assertEqual(bill["config"]["hosts"], [f"n{i}" for i in range(NODES)])
        # Two-level sums depend on the map of nodes, which --nodes gives to the ranks of one machine.
        two_level = self.bill("--exchange", "two-level")["output_hash"]
        self.assertEqual(self.local_bill("--exchange", "two-level", "--nodes", str(NODES))["output_hash"], two_level)

    def test_links_carry_the_bytes_on_the_bill(self):
        for exchange in ("flat", "two-level", "ring"):
            with self.subTest(exchange):
                before = self.cluster.traffic()
                bill = self.bill("--exchange", exchange)
                sent = sum((now - then).tx_bytes for now, then in zip(self.cluster.traffic(), before))
                counted = (STEPS + WARMUP) * sum(of["internode_bytes"] for of in bill["exchanges"])
                # Rows, and on top of them headers of frames, what steers the rows, and the start of the job.
                self.assertGreater(sent, counted)
                self.assertLess(sent, 1.15 * counted + 2e6)

    def test_a_cut_link_is_named_by_the_deadline(self):
        with self.cluster.start(bench("--steps", "1000000", "--deadline", "3"), ranks_per_node=RANKS_PER_NODE) as job:
            job.wait_for_ranks(20)
            time.sleep(3)
            self.cluster.cut(2)
            try:
                cut = time.monotonic()
                job.wait_for_no_rank(20)
                # The deadline, two seconds, and what a busy machine takes.
                self.assertLess(time.monotonic() - cut, 12)
            finally:
                self.cluster.restore(2)
            done = job.wait(timeout=30, grace=15)
            self.assertIn("did not arrive at", "\n".join(done.stderr))


testing.main()
