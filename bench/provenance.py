"""Where, when and with what a record was made."""

import os
import platform
import subprocess
import sys
import time
from importlib.metadata import version


def provenance(command: str) -> dict[str, object]:
    """Command with its arguments, commit, date, machine and versions."""
    git = subprocess.run(["git", "describe", "--always", "--dirty", "--exclude=*"], capture_output=True, text=True)
    return {
        "command": " ".join([command, *sys.argv[1:]]),
        "commit": git.stdout.strip() or None,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "machine": f"{platform.machine()}, {len(os.sched_getaffinity(0))} cores",
        "versions": {"python": platform.python_version(), **{name: version(name) for name in ("papergym", "torch")}},
    }
