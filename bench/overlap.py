"""What running the exchange beside the experts saves, on two nodes of one rank joined by 1 Gbit/s."""
import json
import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "cluster"))
from cluster import Cluster, probe  # noqa: E402

MOETAX = sys.argv[1]
ROUNDS, STEPS = 5, 3  # the median of 15, in turn
PARTS = (1, 2, 4, 8)
SHAPE = ["--hidden", "2048", "--inter", "176", "--experts", "8", "--topk", "2", "--tokens", "2048", "--threads", "1"]


def run(cluster, parts):
    # Each node would take the first core for its own, which is the same one here.
    own_core = ["sh", "-c", 'exec taskset -c "$OMPI_COMM_WORLD_RANK" "$0" "$@"']
    done = cluster.run([*own_core, MOETAX, "bench", *SHAPE, "--steps", str(STEPS), "--warmup", "1", "--overlap", str(parts),
                        "--json", "-"], ranks_per_node=1, timeout=120)
    if done.code != 0:
        sys.exit(str(done))
    bill = json.loads(done.stdout)
    return {"step": bill["step_us"]["p50"], "compute": bill["compute_us"], "exposed": bill["exposed_us"],
            "bits": bill["output_hash"]}


def main():
    if reason := probe():
        print(f"skipped: {reason}")
        return
    runs = {parts: [] for parts in PARTS}
    with Cluster(nodes=2, rate="1gbit") as cluster:
        for _ in range(ROUNDS):
            for parts in PARTS:
                runs[parts].append(run(cluster, parts))
    if len({one["bits"] for of_parts in runs.values() for one in of_parts}) != 1:
        sys.exit("outputs differ")

    def median(parts, what):
        return statistics.median(one[what] for one in runs[parts])

    exchange, compute = median(1, "exposed"), median(1, "compute")
    print(f"{' '.join(SHAPE)}, 2 nodes x 1 rank, 1 Gbit/s, medians of {ROUNDS * STEPS} in turn")
    print(f"without overlap: exchange {exchange / 1e3:.1f} ms, compute {compute / 1e3:.1f} ms")
    print(f"{'parts':>6}{'step':>12}{'compute':>12}{'exposed':>12}{'of the shorter hidden':>24}{'layer':>10}")
    for parts in PARTS:
        hidden = (median(1, "step") - median(parts, "step")) / min(exchange, compute)
        print(f"{parts:>6}{median(parts, 'step') / 1e3:>9.1f} ms{median(parts, 'compute') / 1e3:>9.1f} ms"
              f"{median(parts, 'exposed') / 1e3:>9.1f} ms{100 * hidden:>22.0f} %"
              f"{median(1, 'step') / median(parts, 'step'):>8.2f} x")


main()
