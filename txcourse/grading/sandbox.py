"""Run a student's code apart: in a process without network, files, environment or neighbours, within limits.

Four levels, of which the strongest that this machine allows is taken:

- "bubblewrap": an own file system that holds Python, its packages and one small empty folder; own process, network, host
  and IPC namespaces; no capabilities.
- "user namespace": the same, made here, where bubblewrap is not installed.
- "other user": as root, where neither is possible: a user of its own, who may read what everybody may.
- "limits only": limits on time, memory, processes and output, an empty folder and environment. Code can read what the
  user can.

The worker (worker.py) imports torch once inside the sandbox, and forks for each exercise.
"""

import json
import os
import select
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
import weakref
from pathlib import Path
from typing import Any

from txcourse.checking.guard import endless
from txcourse.errors import UserError
from txcourse.grading import wire
from txcourse.grading.assignment import Limits

LEVELS = ("bubblewrap", "user namespace", "other user", "limits only")
MOST = 8 * 2**20  # bytes of one answer
_FOLDER = 64 * 2**20  # bytes of all files of an exercise, where the folder is the sandbox's own
_STARTING = 180.0  # seconds that importing torch may take on a busy machine
_PATIENCE = 60  # times the limit on time that an exercise may take on a machine too busy to run it
_TICK = 0.1  # seconds between two looks at what the processes use
_ENDED = struct.Struct("<i?")
_ROOT = hasattr(os, "getuid") and os.getuid() == 0
_PACKAGE = Path(__file__).parents[1]
_PARTS = ("__init__.py", "errors.py", "checking/*.py", "grading/__init__.py", "grading/w*.py")


class Stopped(Exception):
    """The exercise's process has ended; `kind` is "timeout" or "died"."""

    def __init__(self, kind: str, sentence: str):
        super().__init__(sentence)
        self.kind, self.sentence = kind, sentence


class Sandbox:
    """A worker in a sandbox of the strongest possible level, or of `level`.

    Raises:
        UserError: this machine cannot run one.
    """

    def __init__(self, limits: Limits, level: str | None = None):
        if not hasattr(os, "fork"):
            raise UserError("grading needs Linux or macOS; on Windows use WSL")
        self.limits = limits
        self._folder = Path(tempfile.mkdtemp(prefix="txcourse-"))
        self._finalizer = weakref.finalize(self, _remove, self._folder)
        self._folder.chmod(0o755)
        for pattern in _PARTS:
            for file in _PACKAGE.glob(pattern):
                copy = self._folder / "course" / "txcourse" / file.relative_to(_PACKAGE)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, copy)
        self.level = level or next(each for each in LEVELS if _works(each))
        self._worker: subprocess.Popen[bytes] | None = None
        self._start()

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        self.output, writing = os.pipe()
        os.set_blocking(self.output, False)
        prefix, user, home = _confined(self.level, self._folder)
        limits = self.limits
        numbers = [
            user,
            limits.memory,
            limits.processes,
            limits.files,
            limits.written,
            int(3 * limits.seconds) + 5,
        ]
        if self.level == "limits only":
            numbers[2] += _processes_of(self._folder.stat().st_uid)
        try:
            self._worker = subprocess.Popen(
                [*prefix, sys.executable, "-sPB", "-m", "txcourse.grading.worker", str(theirs.fileno()), *map(str, numbers)],
                stdin=subprocess.DEVNULL,
                stdout=writing,
                stderr=writing,
                env=_environment(home if home is not None else _private(), self._folder if home is not None else Path("/")),
                cwd=home or "/",
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )  # fmt: skip
        finally:
            theirs.close()
            os.close(writing)
        self._control, self._zygote = ours, 0

    def _ready(self) -> None:
        """Wait until the worker has started; start another where there is none."""
        if self._worker is None:
            self._start()
        if self._zygote:
            return
        assert self._worker is not None
        self._control.settimeout(_STARTING)
        try:
            answer = self._control.recv(1)
        except OSError:
            answer = b""
        if answer != b"!":
            said = _drain(self.output, 2000).decode(errors="replace").strip()
            self.kill()
            raise UserError(f"the sandbox ({self.level}) does not start: {said or 'no reason is given'}")
        self._zygote = self._worker.pid
        while below := _children(self._zygote):
            self._zygote = below[0]

    def run(self) -> "Run":
        """A process for one exercise."""
        self._ready()
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                socket.send_fds(self._control, [b"R"], [theirs.fileno()])
            except OSError:  # somebody killed it: once more
                self.kill()
                self._ready()
                socket.send_fds(self._control, [b"R"], [theirs.fileno()])
        return Run(self, ours)

    def usage(self) -> "_Usage | None":
        """What the processes of the exercise take; None where the system does not tell."""
        return _usage(self._zygote)

    def end(self) -> int | None:
        """End whatever the exercise has started; the exit status of its process, None when the worker is gone too."""
        try:
            self._control.settimeout(10.0)
            self._control.sendall(b"K")
            answer = self._control.recv(_ENDED.size, socket.MSG_WAITALL)
            status, clean = _ENDED.unpack(answer)
        except (OSError, struct.error):
            self.kill()
            return None
        if not clean:
            self.kill()
        return status

    def kill(self) -> None:
        """End the worker and whatever it has started."""
        if self._worker is None:
            return
        for pid in [*reversed(_below(self._worker.pid)), self._worker.pid]:
            try:
                os.kill(pid, 9)
            except ProcessLookupError:
                pass
        self._worker.wait()
        self._worker = None
        self._control.close()
        os.close(self.output)

    def close(self) -> None:
        self.kill()
        self._finalizer()


class Run:
    """One exercise: messages to and from its process, its output, and its limits."""

    def __init__(self, sandbox: Sandbox, connection: socket.socket):
        self._sandbox, self._connection = sandbox, connection
        connection.setblocking(False)
        self.stopped: Stopped | None = None
        self._kept = bytearray()
        self._waited = self._idle = self._unseen = 0.0
        self._start = 0.0  # processor time that does not count

    def start_anew(self) -> None:
        """Count time from here."""
        usage = self._sandbox.usage()
        self._start = usage.seconds if usage else 0.0
        self._waited = self._idle = 0.0

    def exchange(self, data: bytes) -> tuple[bytes, bytes]:
        """Send a message and wait for the answer's header and body.

        Raises:
            Stopped: the process ended, or reached a limit and was ended.
            wire.WireError: the answer is too large.
        """
        if self.stopped is not None:
            raise self.stopped
        try:
            header, body = wire.lengths(self._transfer(data, wire.FRAME), MOST)
            return self._transfer(b"", header), self._transfer(b"", body)
        except Stopped as stopped:
            self.stopped = stopped
            raise
        except wire.WireError:
            self.stopped = Stopped("died", "Your code's answer is too large.")
            raise self.stopped from None

    def _transfer(self, data: bytes, count: int) -> bytes:
        unsent, got = memoryview(data), bytearray()
        waiting = select.poll()
        waiting.register(self._sandbox.output, select.POLLIN)
        before = time.monotonic()
        while unsent or len(got) < count:
            waiting.register(
                self._connection,
                (select.POLLOUT if unsent else 0) | (select.POLLIN if len(got) < count else 0),
            )
            events = dict(waiting.poll(_TICK * 1000))
            if self._sandbox.output in events:
                self._drain()
            try:
                if unsent:
                    unsent = unsent[self._connection.send(unsent[: 1 << 20]) :]
            except BlockingIOError:
                pass
            except OSError:
                raise self._death() from None
            try:
                if len(got) < count:
                    part = self._connection.recv(min(count - len(got), 1 << 20))
                    if not part:
                        raise self._death()
                    got += part
            except BlockingIOError:
                pass
            except OSError:
                raise self._death() from None
            now = time.monotonic()
            self._unseen += now - before
            before = now
            if self._unseen > _TICK:
                passed, self._unseen = self._unseen, 0.0
                self._look(passed, quiet=not events)
        return bytes(got)

    def _look(self, passed: float, quiet: bool) -> None:
        """Count what is used. Time counts when the processor works for the exercise, or when we wait in vain and nothing
        of it even wants to run: on a busy machine a right answer is not late."""
        limits, usage = self._sandbox.limits, self._sandbox.usage()
        self._waited += passed
        if usage is None:
            late = self._waited > 3 * limits.seconds
        else:
            self._idle += _TICK if quiet and not usage.running else 0.0
            late = usage.seconds - self._start > limits.seconds or self._idle > limits.seconds
            if usage.memory > 2 * limits.memory or usage.processes > 4 * limits.processes:
                what = "memory" if usage.memory > 2 * limits.memory else "processes"
                raise Stopped("died", f"Your code takes more {what} than an exercise may.")
        if late or self._waited > _PATIENCE * limits.seconds:
            raise Stopped("timeout", endless(limits.seconds))

    def _drain(self) -> None:
        self._kept += _drain(self._sandbox.output, self._sandbox.limits.output - len(self._kept))

    def _death(self) -> Stopped:
        status = self._sandbox.end()
        how = f"signal {-status}" if status is not None and status < 0 else f"exit status {status}"
        if status == -24:  # SIGXCPU
            return Stopped("timeout", endless(self._sandbox.limits.seconds))
        return Stopped("died", f"Your code ended its process ({how}); return a value instead.")

    def close(self) -> str:
        """End the process and what it has started; what it printed, as far as it is kept."""
        self._connection.close()
        if self._sandbox._worker is not None:
            self._sandbox.end()
        if self._sandbox._worker is not None:
            self._drain()
        return self._kept.decode(errors="replace")


def _remove(folder: Path) -> None:
    """rm, which takes folders in folders without end."""
    subprocess.run(["rm", "-rf", "--", str(folder)], stderr=subprocess.DEVNULL)


def _drain(pipe: int, most: int) -> bytes:
    """What stands in a pipe; more than `most` bytes are thrown away."""
    kept = bytearray()
    for _ in range(64):  # a process that never stops writing must not keep us here
        try:
            part = os.read(pipe, 1 << 16)
        except BlockingIOError:
            break
        if not part:
            break
        kept += part[: max(most - len(kept), 0)]
    return bytes(kept)


# -- levels ----------------------------------------------------------------------------------------------------------


def _environment(home: str, root: Path) -> dict[str, str]:
    return {
        "HOME": home,
        "TMPDIR": home,
        "PATH": "/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "PYTHONPATH": str(root / "course"),
        "PYTHONHASHSEED": "0",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
    }


def _confined(level: str, folder: Path) -> tuple[list[str], int, str | None]:
    """How to start a command at this level, the number of the user that it is to become (0: none), and its home
    outside, None where it has a file system of its own."""
    if level in ("bubblewrap", "user namespace"):
        prefix = _bubblewrap(folder) if level == "bubblewrap" else _user_namespace(folder)
        return prefix, _user() if _ROOT else 0, None
    home = tempfile.mkdtemp(dir=folder)
    user = _user() if level == "other user" else 0
    if user:
        os.chown(home, user, user)
    return [], user, home


def _user() -> int:
    """A user that nobody else is, so that limits on a user's processes count those of one sandbox."""
    return 61_184 + os.getpid() % 4_000


def _readable() -> list[str]:
    return list(dict.fromkeys(["/usr", sys.base_prefix, sys.prefix]))


def _private() -> str:
    """The empty folder that an answer may write to, in a file system of its own; not where Python lies."""
    return "/box" if any(path.startswith("/tmp/") for path in _readable()) else "/tmp"


def _layout(folder: Path) -> dict[str, Any]:
    """The file system that a sandbox has instead of this machine's."""
    readable = _readable()
    installed = [str(Path(path) / "txcourse") for path in sys.path if (Path(path) / "txcourse").is_dir()]
    system = ("/bin", "/lib", "/lib64", "/sbin")
    return {
        "parents": sorted({str(p) for path in readable for p in Path(path).parents} - {"/", *readable}),
        "readable": readable + [path for path in system if os.path.isdir(path) and not os.path.islink(path)],
        "links": [(os.readlink(path), path) for path in system if os.path.islink(path)],
        # An installed package has the solutions.
        "masked": [path for path in installed if any(path.startswith(f"{r}/") for r in readable)],
        "extra": [p for p in ("/etc/ld.so.cache", "/sys/devices/system/cpu") if os.path.exists(p)],
        "course": str(folder / "course"),
        "private": _private(),
        "size": _FOLDER,
    }


def _bubblewrap(folder: Path) -> list[str]:
    layout = _layout(folder)
    command = [
        "bwrap",
        "--unshare-ipc",
        "--unshare-pid",
        "--unshare-net",
        "--unshare-uts",
        "--unshare-cgroup-try",
    ]
    command += ["--as-pid-1", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    command += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"] if _ROOT else ["--unshare-user"]
    for path in layout["parents"]:  # else made for root alone
        command += ["--perms", "0755", "--dir", path]
    for path in [*layout["readable"], *layout["extra"]]:
        command += ["--ro-bind", path, path]
    for target, path in layout["links"]:
        command += ["--symlink", target, path]
    for path in layout["masked"]:
        command += ["--tmpfs", path]
    command += ["--ro-bind", layout["course"], "/course", "--proc", "/proc", "--dev", "/dev"]
    command += ["--perms", "1777", "--size", str(_FOLDER), "--tmpfs", layout["private"]]
    return [*command, "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", layout["private"], "--"]


def _user_namespace(folder: Path) -> list[str]:
    root = folder / "root"
    root.mkdir(exist_ok=True)
    layout = json.dumps({**_layout(folder), "root": str(root)})
    return [sys.executable, "-ISB", str(Path(__file__).with_name("confine.py")), layout]


def _works(level: str) -> bool:
    if level == "bubblewrap" and shutil.which("bwrap") is None:
        return False
    if level in ("bubblewrap", "user namespace"):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "course").mkdir()
            prefix = _confined(level, Path(folder))[0]
            try:
                tried = subprocess.run(
                    [*prefix, sys.executable, "-ISc", ""], capture_output=True, timeout=60, cwd="/"
                )
            except (OSError, subprocess.TimeoutExpired):
                return False
            return tried.returncode == 0
    return level == "limits only" or _ROOT


# -- what processes take -------------------------------------------------------------------------------------------------


class _Usage:
    seconds = 0.0
    memory = 0
    processes = 0
    running = False


_HERTZ = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


def _children(pid: int) -> list[int]:
    found: list[int] = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children") as children:
                found += map(int, children.read().split())
    except (OSError, ValueError):
        pass
    return found


def _below(pid: int) -> list[int]:
    found, new = [], [pid]
    while new:
        new = [child for each in new for child in _children(each)]
        found += new
        if len(found) > 10_000:
            break
    return found


def _usage(zygote: int) -> _Usage | None:
    if sys.platform != "linux":
        return None
    total = _Usage()
    for pid in _below(zygote):
        try:
            with open(f"/proc/{pid}/stat") as file:
                fields: list[Any] = file.read().rpartition(")")[2].split()
            total.seconds += sum(map(int, fields[11:15])) / _HERTZ
            total.memory += int(fields[21]) * _PAGE
            total.processes += 1
            for task in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{task}/stat") as file:
                    total.running |= file.read().rpartition(")")[2].split()[0] in "RD"
        except (OSError, ValueError, IndexError):
            continue  # it has just ended
    return total


def _processes_of(user: int) -> int:
    """How many threads this user has."""
    count = 0
    for entry in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if entry.isdigit():
            try:
                if os.stat(f"/proc/{entry}").st_uid == user:
                    count += len(os.listdir(f"/proc/{entry}/task"))
            except OSError:
                continue
    return count
