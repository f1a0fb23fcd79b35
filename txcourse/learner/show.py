"""Text in a terminal, HTML in a notebook."""

import html
import sys


class Shown:
    """Something to read, as text and as HTML."""

    def __init__(self, text: str, as_html: str | None = None):
        self.text = text
        self.html = as_html or f'<div style="white-space:pre-wrap">{html.escape(text)}</div>'

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return self.html


def show(shown: Shown) -> None:
    """Display in a notebook, print elsewhere."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    if shell is not None and hasattr(shell, "kernel"):
        from IPython.display import display

        display(shown)
    else:
        print(shown.text)
