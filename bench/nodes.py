"""Exchanges between nodes, against each other, the link and MPI: on a cluster of network namespaces (docs/cluster.md).

    bench_nodes [--rounds N]      4 nodes of 2 ranks, 1 Gbit/s each way
"""
import argparse
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "cluster"))
import cluster as clusters  # noqa: E402

NODES, RANKS_PER_NODE = 4, 2
# What TCP carries of 1 Gbit/s with frames of 9000 bytes.
PAYLOAD_BYTES_PER_S = 1e9 / 8 * (9000 - 52) / (9000 + 38)


def measure(cluster, program, rounds, tokens, hot):
    flags = ["--hot"] if hot else []
    done = cluster.run([program, "--json", "--rounds", str(rounds), "--tokens", str(tokens), *flags],
                       ranks_per_node=RANKS_PER_NODE, timeout=600)
    if done.code != 0:
        sys.exit(f"bench_nodes: the job failed\n{done}")
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {row["name"]: row for row in rows}


def row(what, us, reach):
    print(f"{what}: {us} ({reach})", flush=True)


def table(cluster, program, rounds):
    by_name = measure(cluster, program, rounds, 512, hot=False)
    for name, of in by_name.items():
        print(f"  T=512 {name:<10} {of['us'] / 1e3:7.1f} ms [{of['p10_us'] / 1e3:.1f}..{of['p90_us'] / 1e3:.1f}]")
    two_level, flat, plain = by_name["two-level"], by_name["flat"], by_name["alltoallv"]
    row("two-level against flat", f"{flat['us'] / two_level['us']:.2f}x", "reach 1.4x")
    # A burst passes each port at once: in both exchanges of a round, out of the node and into the next.
    bound_us = (two_level["most_bytes"] - 2 * clusters.BURST_BYTES) / PAYLOAD_BYTES_PER_S * 1e6
    row("two-level against the bytes that must cross its link", f"{100 * bound_us / two_level['us']:.0f} %", "reach 85 %")
    row("two-level against MPI_Alltoallv with a row per choice", f"{plain['us'] / two_level['us']:.2f}x", "reach 2x")


def main():
    parser = argparse.ArgumentParser(prog="bench_nodes")
    parser.add_argument("program")
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    why_not = clusters.probe()
    if why_not:
        print(f"skipped: {why_not}")
        return
    with clusters.Cluster(nodes=NODES, rate="1gbit") as cluster:
        table(cluster, arguments.program, arguments.rounds)


main()
