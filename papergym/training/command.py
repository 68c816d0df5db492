"""The command line of a trainer: `python -m papergym.distill.train --config FILE [--set key=value …] [--resume | --replay DIR]`."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from papergym.command_line import PATH, Command
from papergym.config import load_config


def training_command(config_class: type, run: Callable[..., Path], summary: str) -> click.Command:
    """Builds the click command that reads a configuration of `config_class` and calls run(config, resume=...)."""

    @click.command(cls=Command, help=summary, context_settings={"help_option_names": ["-h", "--help"]})
    @click.option("--config", "path", type=PATH, required=True, help="a TOML recipe, see configs/")
    @click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="override one key, e.g. optim.lr=1e-5")
    @click.argument("more", nargs=-1, metavar="[KEY=VALUE]…")  # --set takes several: --set a=1 b=2
    @click.option("--resume", is_flag=True, help="continue from the newest checkpoint in run.dir")
    @click.option("--replay", type=PATH, help="a failed step, run.dir/failed/step_…: say what is not finite, and end")
    def command(path: Path, overrides: tuple[str, ...], more: tuple[str, ...], resume: bool, replay: Path | None) -> None:
        config: Any = load_config(config_class, path, overrides + more)
        adapter = run(config, resume=resume, replay=replay)
        if int(os.environ.get("RANK", "0")) == 0:
            click.echo(adapter)

    return command
