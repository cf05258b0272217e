"""Exchanges between nodes, against each other, the link and MPI: on a cluster of network namespaces (docs/cluster.md).

    bench_nodes [--rounds N]      4 nodes of 2 ranks, 1 Gbit/s each way
"""
import argparse
import json
import pathlib
import statistics
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "cluster"))
import cluster as clusters  # noqa: E402

NODES, RANKS_PER_NODE = 4, 2
# What TCP carries of 1 Gbit/s with frames of 9000 bytes.
PAYLOAD_BYTES_PER_S = 1e9 / 8 * (9000 - 52) / (9000 + 38)


# From decode to prefill, and each again with all tokens at one expert.
TOKENS = [1, 4, 8, 32, 128, 512]


def run(cluster, argv):
    done = cluster.run(argv, ranks_per_node=RANKS_PER_NODE, timeout=900)
    if done.code != 0:
        sys.exit(f"bench_nodes: the job failed\n{done}")
    return done.stdout


def measure(cluster, program, rounds, tokens, *flags):
    """The rows of exchange_over_nodes: by number of tokens, by name."""
    sizes = ",".join(str(size) for size in tokens)
    out = run(cluster, [program, "--json", "--rounds", str(rounds), "--tokens", sizes, *flags])
    rows = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    return {size: {row["name"]: row for row in rows if row["tokens"] == size} for size in tokens}


def row(what, us, reach):
    print(f"{what}: {us} ({reach})", flush=True)


def two_level_table(by_name):
    for name, of in by_name.items():
        print(f"  T=512 {name:<10} {of['us'] / 1e3:7.1f} ms [{of['p10_us'] / 1e3:.1f}..{of['p90_us'] / 1e3:.1f}]")
    two_level, flat, plain = by_name["two-level"], by_name["flat"], by_name["alltoallv"]
    row("two-level against flat", f"{flat['us'] / two_level['us']:.2f}x", "reach 1.4x")
    # A burst passes each port at once: in both exchanges of a round, out of the node and into the next.
    bound_us = (two_level["most_bytes"] - 2 * clusters.BURST_BYTES) / PAYLOAD_BYTES_PER_S * 1e6
    row("two-level against the bytes that must cross its link", f"{100 * bound_us / two_level['us']:.0f} %", "reach 85 %")
    row("two-level against MPI_Alltoallv with a row per choice", f"{plain['us'] / two_level['us']:.2f}x", "reach 2x")


def spread(of):
    return of["p90_us"] - of["p10_us"]


def choice_table(shapes):
    """What auto would choose by its predictions against the best measured, and how far predictions are off."""
    errors, worse = [], []
    for (size, kind), by_name in shapes.items():
        exchanges = [of for name, of in by_name.items() if name != "alltoallv"]
        best = min(exchanges, key=lambda of: of["us"])
        chosen = min(exchanges, key=lambda of: of["predicted_us"])
        off = [abs(of["predicted_us"] / of["us"] - 1) for of in exchanges]
        errors += off
        loss = chosen["us"] / best["us"] - 1
        worse.append(0 if chosen["us"] - best["us"] <= spread(best) else loss)
        print(f"  T={size:<4} {kind:<8} auto {chosen['name']:<10}{chosen['us'] / 1e3:8.2f} ms, best {best['name']:<10}"
              f"{best['us'] / 1e3:8.2f} ms [{best['p10_us'] / 1e3:.2f}..{best['p90_us'] / 1e3:.2f}], "
              f"{100 * loss:+.0f} %; predicted {chosen['predicted_us'] / 1e3:8.2f} ms, all five off by "
              f"{100 * statistics.mean(off):.0f} % on average")
    row("auto against the best, worst of 12 shapes, beyond the best's own spread", f"{100 * max(worse):+.0f} %",
        "reach 10 %")
    row("predicted against measured, 12 shapes, five exchanges", f"{100 * statistics.mean(errors):.1f} % on average, "
        f"{100 * max(errors):.0f} % at worst", "reach 10 % and 25 %")


def measure_shapes(cluster, program, moetax, rounds):
    with tempfile.TemporaryDirectory() as directory:
        machine = f"{directory}/machine.json"
        run(cluster, [moetax, "calibrate", "--out", machine])
        shapes = {}
        for kind, flags in (("uniform", []), ("hot", ["--hot"])):
            for size, by_name in measure(cluster, program, rounds, TOKENS, "--machine", machine, *flags).items():
                shapes[size, kind] = by_name
    return shapes


def main():
    parser = argparse.ArgumentParser(prog="bench_nodes")
    parser.add_argument("program")
    parser.add_argument("moetax")
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    why_not = clusters.probe()
    if why_not:
        print(f"skipped: {why_not}")
        return
    with clusters.Cluster(nodes=NODES, rate="1gbit") as cluster:
        shapes = measure_shapes(cluster, arguments.program, arguments.moetax, arguments.rounds)
    two_level_table(shapes[512, "uniform"])
    choice_table(shapes)


main()
