"""A learner in a real browser: a wrong answer and its name, the right one and where it is stored.

Needs Chromium (apt-get install chromium) and the Python package playwright, without `playwright install`.
"""

import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt-get install chromium")

SECONDS = 120  # for one step, on a busy machine
ANSWER = """def scaled_dot_product_attention(query, key, value, mask=None):
    scores = query @ key.transpose(-2, -1){scale}
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    top = scores.amax(-1, keepdim=True).nan_to_num(neginf=0.0)
    exp = (scores - top).exp()
    weights = exp / exp.sum(-1, keepdim=True).clamp(min=1e-30)
    return weights @ value, weights
"""


class Lab(NamedTuple):
    address: str
    token: str
    folder: Path  # where it was started

    def api(self, path: str) -> object:
        with urllib.request.urlopen(f"{self.address}/api/{path}?token={self.token}", timeout=5) as reply:
            return json.load(reply)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    """`txcourse lab` in an empty folder, with settings of its own."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = tmp_path / "home" / "settings" / "@jupyterlab"
    for plugin, values in {
        "notebook-extension/tracker": {
            "windowingMode": "none"
        },  # or outputs out of sight are not on the page
        "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
    }.items():
        (settings / plugin).parent.mkdir(parents=True, exist_ok=True)
        (settings / f"{plugin}.jupyterlab-settings").write_text(json.dumps(values))
    token = secrets.token_hex(8)
    home = str(tmp_path / "home")
    own = [
        "HOME",
        "JUPYTER_CONFIG_DIR",
        "JUPYTER_DATA_DIR",
        "JUPYTER_RUNTIME_DIR",
        "IPYTHONDIR",
        "MPLCONFIGDIR",
    ]
    environment = {
        k: v for k, v in os.environ.items() if k not in ("TXCOURSE_WORKSPACE", "PYTEST_CURRENT_TEST")
    }
    environment |= dict.fromkeys([*own, "JUPYTERLAB_WORKSPACES_DIR"], home)
    environment |= {"JUPYTERLAB_SETTINGS_DIR": f"{home}/settings", "JUPYTER_TOKEN": token}
    with open(tmp_path / "log", "w") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "txcourse.cli", "lab", "--no-browser", "--port", str(port)],
            cwd=tmp_path,
            env=environment,
            stdout=log,
            stderr=log,
        )
        running = Lab(f"http://127.0.0.1:{port}", token, tmp_path)
        try:
            _until(lambda: running.api("status"), f"the server does not start, see {tmp_path / 'log'}")
            yield running
        finally:
            server.terminate()
            server.wait(20)
            with socket.socket() as probe:  # JupyterLab has gone with it
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(("127.0.0.1", port))


def _until(true: object, complaint: str) -> None:
    give_up = time.monotonic() + SECONDS
    while time.monotonic() < give_up:
        try:
            if true():  # type: ignore[operator]
                return
        except OSError:
            pass
        time.sleep(0.2)
    pytest.fail(complaint)


def _idle(lab: Lab) -> bool:
    """Whether a page is connected to a kernel that waits. (The page itself says so too early.)"""
    return any(
        s["kernel"]["connections"] and s["kernel"]["execution_state"] == "idle"
        for s in lab.api("sessions")  # type: ignore[attr-defined]
    )


def test_a_wrong_answer_is_named_and_the_right_one_stored(lab: Lab) -> None:
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(
            executable_path=CHROMIUM,
            args=[
                "--no-sandbox",
                "--disable-gpu",
                "--disable-background-networking",
                "--disable-component-update",
            ],
        )
        page = browser.new_page(viewport={"width": 1280, "height": 1400})
        page.set_default_timeout(1000 * SECONDS)
        page.goto(
            f"{lab.address}/lab/tree/03_attention.ipynb?token={lab.token}&reset",
            wait_until="domcontentloaded",
        )
        page.wait_for_selector(".jp-NotebookPanel .jp-Notebook .jp-Cell")
        _until(lambda: _idle(lab), "no kernel was connected to the page")

        code = page.locator(".jp-CodeCell")
        sources = code.evaluate_all("cells => cells.map(c => c.querySelector('.cm-content').innerText)")
        place = next(i for i, s in enumerate(sources) if s.startswith("def scaled_dot_product_attention"))
        assert "NotImplementedError" in sources[place] and "= check(" in sources[place + 1]
        imports = next(i for i, s in enumerate(sources) if "import" in s)

        def run(number: int) -> None:
            code.nth(number).locator(".cm-content").click()
            page.keyboard.press("Control+Enter")

        def answer(text: str) -> str:
            """Type an answer, run it and its check, and return what the check shows."""
            code.nth(place).locator(".cm-content").click()
            page.keyboard.press("Control+A")
            page.keyboard.insert_text(text)
            run(place)
            run(place + 1)
            output = code.nth(place + 1).locator(
                ".jp-OutputArea-output", has_text="scaled_dot_product_attention:"
            )
            output.filter(has_text="not yet" if "sqrt" not in text else "passed").first.wait_for()
            return "\n".join(output.all_inner_texts())

        run(imports)
        shown = answer(ANSWER.format(scale=""))
        assert "not divided by √d_k" in shown and "reference" in shown

        shown = answer(ANSWER.format(scale=" / query.shape[-1] ** 0.5  # sqrt"))
        assert "not yet" not in shown and "my_transformer" in shown
        page.screenshot(path=lab.folder / "page.png")
        browser.close()

    module = lab.folder / "work" / "my_transformer" / "attention.py"
    assert "query.shape[-1] ** 0.5" in module.read_text(encoding="utf-8")
    check = "import attention, torch; x = torch.eye(2); print(attention.scaled_dot_product_attention(x, x, x)[0].shape)"
    done = subprocess.run([sys.executable, "-c", check], cwd=module.parent, capture_output=True, text=True)
    assert done.stdout.strip() == "torch.Size([2, 2])", done.stderr
