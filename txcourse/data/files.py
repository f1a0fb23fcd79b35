"""Data that the course may not carry: read from a folder, or downloaded when the user asks, and always checked."""

import hashlib
import os
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from txcourse.errors import UserError

FOLDER = "TXCOURSE_DATA"  # the variable that names a folder with the files, or with a subfolder of each set


@dataclass(frozen=True)
class FileSet:
    """The files of a data set: where they are published, and the SHA-256 of each."""

    name: str  # of the subfolder
    title: str  # what the user is told
    address: str  # without the file's name
    sha256: dict[str, str]

    def read(self, download: bool = False) -> dict[str, bytes]:
        """The content of every file, from the folder named by TXCOURSE_DATA or from the cache.

        With `download`, files that are in neither are fetched into the cache. Raises UserError, in one line, when a
        file is missing, cannot be fetched or is not the published one.
        """
        folders = [cache_folder() / self.name]
        if FOLDER in os.environ:
            given = Path(os.environ[FOLDER]).expanduser()
            folders = [given / self.name, given, *folders]
        return {file: self._one(file, folders, download) for file in self.sha256}

    def _one(self, file: str, folders: list[Path], download: bool) -> bytes:
        for path in (folder / file for folder in folders):
            try:
                content = path.read_bytes()
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                raise UserError(f"Cannot read {path}: {error.strerror or error}.") from None
            if hashlib.sha256(content).hexdigest() != self.sha256[file]:
                raise UserError(
                    f"{path} is damaged or another version, and scores on it would not compare: delete it."
                )
            return content
        if not download:
            raise UserError(
                f"There is no {file} of {self.title}: add --download to fetch it, or let {FOLDER} name a folder with it."
            )
        return self._fetch(file, folders[-1])

    def _fetch(self, file: str, folder: Path) -> bytes:
        address = f"{self.address}/{file}"
        try:
            with urllib.request.urlopen(address, timeout=30) as answer:
                content: bytes = answer.read()
        except (OSError, ValueError) as error:  # no network, no such page, a proxy's nonsense
            raise UserError(
                f"Cannot fetch {address} ({getattr(error, 'reason', None) or error}): look at the network, or put the "
                f"file into a folder that {FOLDER} names."
            ) from None
        if hashlib.sha256(content).hexdigest() != self.sha256[file]:
            raise UserError(f"What {address} sent is not the published file: try again later.")
        temporary = folder / f".{file}.{os.getpid()}.tmp"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            temporary.write_bytes(content)
            os.replace(temporary, folder / file)
        except OSError as error:
            raise UserError(f"Cannot keep {file} in {folder}: {error.strerror or error}.") from None
        return content


def cache_folder() -> Path:
    """Where downloads are kept: the user's cache folder, by the custom of the system."""
    custom = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA")
    return (Path(custom) if custom else Path.home() / ".cache") / "txcourse"
