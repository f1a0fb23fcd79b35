"""Data from a folder, from the cache or from an address; nothing here needs a network."""

import hashlib
import urllib.request

import pytest

from txcourse.data.files import FileSet
from txcourse.errors import UserError

CONTENT = b"one line\n"
DIGEST = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture(autouse=True)
def empty_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("TXCOURSE_DATA", raising=False)


@pytest.fixture
def published(tmp_path):
    """A set whose address is a folder of this machine."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "a.txt").write_bytes(CONTENT)
    return FileSet("small", "the small set", (tmp_path / "site").as_uri(), {"a.txt": DIGEST})


def one_line(function, *arguments, **options) -> str:
    with pytest.raises(UserError) as error:
        function(*arguments, **options)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_download_is_asked_for_checked_and_kept(published, tmp_path):
    said = one_line(published.read)
    assert "no a.txt of the small set: add --download" in said and "TXCOURSE_DATA" in said
    assert published.read(download=True) == {"a.txt": CONTENT}
    (tmp_path / "site" / "a.txt").unlink()
    assert published.read() == {"a.txt": CONTENT}  # from the cache
    assert [file.name for file in (tmp_path / "cache" / "txcourse" / "small").iterdir()] == ["a.txt"]


@pytest.mark.parametrize("below", ["", "small"])
def test_a_folder_comes_first(published, tmp_path, monkeypatch, below):
    folder = tmp_path / "data" / below
    folder.mkdir(parents=True)
    (folder / "a.txt").write_bytes(CONTENT)
    monkeypatch.setenv("TXCOURSE_DATA", str(tmp_path / "data"))
    assert published.read() == {"a.txt": CONTENT}
    (folder / "a.txt").write_bytes(b"other")
    assert "a.txt is damaged or another version" in one_line(published.read, download=True)


def test_what_goes_wrong_with_a_download_is_one_line_and_keeps_nothing(published, tmp_path, monkeypatch):
    (tmp_path / "site" / "a.txt").write_bytes(b"<html>log in first</html>")
    assert "is not the published file" in one_line(published.read, download=True)

    def no_network(address, timeout):
        raise OSError("Name or service not known")

    monkeypatch.setattr(urllib.request, "urlopen", no_network)
    assert "Name or service not known): look at the network" in one_line(published.read, download=True)
    assert not (tmp_path / "cache").exists()


def test_a_cache_that_cannot_be_written_is_one_line(published, tmp_path):
    (tmp_path / "cache").write_text("a file where the folder should be")
    assert "Cannot keep a.txt in" in one_line(published.read, download=True)
