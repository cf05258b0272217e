"""Holds what `moetax doctor --json` writes against schema/findings.schema.json.

usage: check_findings_schema.py SCHEMA MOETAX. Exit 77 (skipped) without the jsonschema package.
"""
import copy
import json
import pathlib
import subprocess
import sys
import tempfile

try:
    import jsonschema
except ImportError:
    print("skipped: Debian package python3-jsonschema is not installed for", sys.executable)
    sys.exit(77)

schema = json.load(open(sys.argv[1]))
jsonschema.Draft202012Validator.check_schema(schema)
validator = jsonschema.Draft202012Validator(schema)
INPUTS = {
    "config.json": json.dumps({"model_type": "mixtral", "hidden_size": 4096, "intermediate_size": 14336,
                               "num_hidden_layers": 32, "num_local_experts": 8, "num_experts_per_tok": 2}),
    "ds.json": '{"zero_optimization": {"stage": 3}}',
    "run.log": "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLTOALL, NumelIn=4)\n"
               "[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLTOALL, NumelIn=8)\xff\n",
    "noise.bin": "\0\1\2",
}
with tempfile.TemporaryDirectory() as folder:
    for name, text in INPUTS.items():
        (pathlib.Path(folder) / name).write_bytes(text.encode("latin-1"))
    command = [sys.argv[2], "doctor", folder, "--json", "-", "--ignore", "zero3-expert-modules=known"]
    findings = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
failures = [f"{error.json_path}: {error.message}" for error in validator.iter_errors(findings)]
for key in ("checked", "skipped", "understood", "findings", "ignored"):
    if not findings[key]:
        failures.append(f"the sample has nothing under {key}")


def broken(change):
    copied = copy.deepcopy(findings)
    change(copied)
    return copied


# The schema must be able to say no.
for what, bad in [
    ("another schema", broken(lambda f: f.update(schema="moetax.findings/2"))),
    ("no findings", broken(lambda f: f.pop("findings"))),
    ("an unknown severity", broken(lambda f: f["findings"][0].update(severity="fatal"))),
    ("a line 0", broken(lambda f: f["findings"][0]["evidence"][0].update(line=0))),
    ("no price", broken(lambda f: f["findings"][0].pop("cost"))),
]:
    if validator.is_valid(bad):
        failures.append(f"the schema accepts findings with {what}")
print("\n".join(failures) or "as the schema says")
sys.exit(1 if failures else 0)
