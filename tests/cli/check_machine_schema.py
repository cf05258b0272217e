"""Holds what `moetax calibrate` writes against schema/machine.schema.json.

usage: check_machine_schema.py SCHEMA MOETAX. Exit 77 (skipped) without the jsonschema package.
"""
import json
import subprocess
import sys

try:
    import jsonschema
except ImportError:
    print("skipped: Debian package python3-jsonschema is not installed for", sys.executable)
    sys.exit(77)

schema = json.load(open(sys.argv[1]))
jsonschema.Draft202012Validator.check_schema(schema)
validator = jsonschema.Draft202012Validator(schema)
command = [sys.argv[2], "calibrate", "--ranks", "4", "--nodes", "2", "--out", "-"]
machine = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
failures = [f"{error.json_path}: {error.message}" for error in validator.iter_errors(machine)]
# The schema must be able to say no.
for key in list(machine):
    broken = {name: value for name, value in machine.items() if name != key}
    if validator.is_valid(broken):
        failures.append(f"the schema accepts a machine without {key}")
print("\n".join(failures) or "as the schema says")
sys.exit(1 if failures else 0)
