"""Where, when and with what a record was made."""

import os
import platform
import subprocess
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from typing import Any


def provenance(command: str, *packages: str) -> dict[str, Any]:
    """Command with its arguments, commit, date, machine and versions, also of the packages named: None for one that is absent."""
    git = subprocess.run(["git", "describe", "--always", "--dirty", "--exclude=*"], capture_output=True, text=True)
    return {
        "command": " ".join([command, *sys.argv[1:]]),
        "commit": git.stdout.strip() or None,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "machine": f"{platform.machine()}, {len(os.sched_getaffinity(0))} cores",
        "versions": {"python": platform.python_version(), **{name: _version(name) for name in ("papergym", "torch", *packages)}},
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
