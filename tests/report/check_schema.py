"""Holds the bills that a program prints against schema/bill.schema.json.

usage: check_schema.py SCHEMA PROGRAM. Exit 77 (skipped) without the jsonschema package.
"""
import copy
import json
import subprocess
import sys

try:
    import jsonschema
except ImportError:
    print("skipped: Debian package python3-jsonschema is not installed for", sys.executable)
    sys.exit(77)


def without(bill, key):
    broken = copy.deepcopy(bill)
    del broken[key]
    return broken


def replaced(bill, key, value):
    broken = copy.deepcopy(bill)
    broken[key] = value
    return broken


schema = json.load(open(sys.argv[1]))
jsonschema.Draft202012Validator.check_schema(schema)
validator = jsonschema.Draft202012Validator(schema)
bills = json.loads(subprocess.run([sys.argv[2]], check=True, capture_output=True).stdout)
assert bills, "the program printed no bill"
failures = 0
for number, bill in enumerate(bills):
    for error in validator.iter_errors(bill):
        failures += 1
        print(f"bill {number}, {error.json_path}: {error.message}")

# The schema must be able to say no.
good = bills[0]
for what, broken in [
    ("no tax", without(good, "tax")),
    ("another schema", replaced(good, "schema", "moetax.bill/2")),
    ("text for a time", replaced(good, "compute_us", "12")),
    ("null for exposed_us, which is always known", replaced(good, "exposed_us", None)),
    ("no ep_size", replaced(good, "config", without(good["config"], "ep_size"))),
    ("a delay without its rank", replaced(good, "config", replaced(good["config"], "delays", [{"ms": 5}]))),
    ("a misspelt key", replaced(good, "compute_ms", 1.0)),
]:
    if validator.is_valid(broken):
        failures += 1
        print("the schema accepts a bill with", what)
print(f"{len(bills)} bills, {failures} failures")
sys.exit(1 if failures else 0)
