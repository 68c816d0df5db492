"""What commands have in common: how bad input ends them, and the type of a path."""

from pathlib import Path
from typing import Any

import click

from papergym.errors import exit_on_input_error

PATH = click.Path(path_type=Path)


class Command(click.Command):
    """A command that reports bad input as one sentence with exit code 2."""

    def invoke(self, context: click.Context) -> Any:
        with exit_on_input_error():
            return super().invoke(context)


class Group(click.Group):
    command_class = Command
