"""Errors that are the user's to mend."""


class UserError(Exception):
    """Something the user can put right. The message is one plain line that says what to do; the command
    line prints it and ends with exit code 2."""

    def _render_traceback_(self) -> list[str]:
        """What IPython shows in place of a traceback."""
        return [str(self)]
