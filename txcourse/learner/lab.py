"""`txcourse lab`: JupyterLab on the learner's folder."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

from txcourse.errors import UserError
from txcourse.learner.course import bring_missing, newer
from txcourse.learner.workspace import VARIABLE, create, find


def open_lab(port: int | None, browser: bool) -> int:
    """Make the course folder where there is none, and run JupyterLab on it until it is stopped.

    Args:
        port: the server's port; None takes the first free one from 8888 on.
    Returns:
        JupyterLab's exit code.
    Raises:
        UserError: the port is taken, the folder cannot be written, or JupyterLab is not installed.
    """
    if port is not None and not free(port):
        raise UserError(f"port {port} is taken; choose another, for example: txcourse lab --port {port + 1}")
    workspace = find() or create(Path.cwd() / "work")
    bring_missing(workspace)
    if waiting := newer(workspace):
        print(
            f"A newer version is there of {', '.join(waiting)}. To bring it, answers included: txcourse update"
        )
    port = port or next((p for p in range(8888, 8988) if free(p)), 0)
    print(
        f"The course is in {workspace.root}. JupyterLab runs on port {port}; Ctrl-C twice stops it.",
        flush=True,
    )
    command = [sys.executable, "-m", "jupyterlab", f"--ServerApp.root_dir={workspace.root}"]
    command += [f"--ServerApp.port={port}", "--ServerApp.port_retries=0", "--log-level=WARN"]
    command += [] if browser else ["--no-browser"]
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        command.append(
            "--allow-root"
        )  # root is the only user of a container; the server listens to this machine only
    server = subprocess.Popen(command, env=os.environ | {VARIABLE: str(workspace.root)})
    signal.signal(signal.SIGTERM, lambda *_: server.terminate())
    while True:
        try:
            return server.wait()
        except KeyboardInterrupt:  # JupyterLab got it too, and asks whether it shall stop
            continue


def free(port: int) -> bool:
    """Whether nothing listens on that port of this machine.

    Raises:
        UserError: no such port.
    """
    if not 0 < port < 65536:
        raise UserError(f"{port} is no port; ports are 1 to 65535")
    with socket.socket() as probe:
        if os.name != "nt":
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except PermissionError as error:
            raise UserError(f"port {port} is not open to you; choose one above 1023") from error
        except OSError:
            return False
    return True
