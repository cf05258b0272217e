"""For test programs that need a cluster: skipped, with the reason, where none can be made."""
import sys
import unittest

from cluster import probe

SKIPPED = 77  # CTest's SKIP_RETURN_CODE


def main(launcher="openmpi"):
    """Runs the unittest cases of the calling program, after `probe(launcher)` found nothing missing."""
    if reason := probe(launcher):
        print("skipped:", reason)
        sys.exit(SKIPPED)
    unittest.main(argv=sys.argv[:1], verbosity=2)
