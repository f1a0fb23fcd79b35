"""Start a command in namespaces and a file system of its own, as bubblewrap does, where that is not installed.

Run as a script, with a layout (sandbox.py) as JSON and the command. Where the kernel does not allow it, it ends with a
traceback, and the sandbox takes the next weaker level.
"""

import ctypes
import json
import os
import platform
import sys
from typing import Any

_NEW = {
    "mount": 0x20000,
    "cgroup": 0x2000000,
    "uts": 0x4000000,
    "ipc": 0x8000000,
    "pid": 0x20000000,
    "net": 0x40000000,
}
_NEW_USER = 0x10000000
_READ_ONLY, _NO_SUID, _NO_DEV, _NO_EXEC, _REMOUNT, _BIND, _REC, _PRIVATE = (
    1,
    2,
    4,
    8,
    32,
    4096,
    16384,
    1 << 18,
)
_DETACH = 2
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_PDEATHSIG, _NO_NEW_PRIVS, _KILL = 1, 38, 9
_libc = ctypes.CDLL(None, use_errno=True)


def _checked(result: int) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _mount(source: str, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    texts = [None if text is None else text.encode() for text in (source, target, kind, options)]
    _checked(_libc.mount(texts[0], texts[1], texts[2], ctypes.c_ulong(flags), texts[3]))


def _bind(path: str, target: str, writable: bool = False) -> None:
    if os.path.isdir(path):
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        open(target, "w").close()
    _mount(path, target, None, _BIND | _REC)
    if not writable:
        kept = os.statvfs(target).f_flag  # flags that are locked in a user namespace have to be given again
        flags = kept & (_NO_SUID | _NO_DEV | _NO_EXEC | 1024 | 2048) | (1 << 21 if kept & 4096 else 0)
        _mount("none", target, None, flags | _BIND | _REMOUNT | _READ_ONLY)


def _file_system(layout: dict[str, Any]) -> None:
    root = layout["root"]
    os.umask(0o022)
    _mount("none", "/", None, _REC | _PRIVATE)
    _mount("tmpfs", root, "tmpfs", _NO_SUID | _NO_DEV, "mode=755,size=1m")
    for path in [*layout["readable"], *layout["extra"]]:
        _bind(path, root + path)
    for target, path in layout["links"]:
        os.symlink(target, root + path)
    for path in layout["masked"]:
        _mount("tmpfs", root + path, "tmpfs", _NO_SUID | _NO_DEV | _READ_ONLY, "mode=755")
    _bind(layout["course"], root + "/course")
    for device in ("null", "zero", "full", "random", "urandom"):
        _bind(f"/dev/{device}", f"{root}/dev/{device}", writable=True)
    os.mkdir(root + "/proc")
    _mount("proc", root + "/proc", "proc", _NO_SUID | _NO_DEV | _NO_EXEC)
    private = layout["private"]
    os.mkdir(root + private)
    _mount("tmpfs", root + private, "tmpfs", _NO_SUID | _NO_DEV, f"mode=1777,size={layout['size']}")
    os.chdir(root)
    _checked(_libc.syscall(_PIVOT_ROOT[platform.machine()], b".", b"."))
    _checked(_libc.umount2(b".", _DETACH))
    os.chdir("/")
    _mount("none", "/", None, _REMOUNT | _BIND | _READ_ONLY | _NO_SUID | _NO_DEV)
    os.chdir(private)


if sys.platform == "linux" and __name__ == "__main__":
    layout, command = json.loads(sys.argv[1]), sys.argv[2:]
    user, group = os.getuid(), os.getgid()
    _checked(_libc.unshare(sum(_NEW.values()) | (_NEW_USER if user else 0)))
    if user:
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"{user} {user} 1"),
            ("gid_map", f"{group} {group} 1"),
        ):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        os._exit(os.waitstatus_to_exitcode(status) & 0xFF)
    _libc.prctl(_PDEATHSIG, _KILL, 0, 0, 0)
    _file_system(layout)
    _libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0)
    os.execv(command[0], command)
