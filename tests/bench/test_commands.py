"""`papergym bench`: what holds for each of its commands."""

import pytest
from click.testing import CliRunner

from papergym.bench.commands import bench
from papergym.cli import main


@pytest.mark.parametrize("name", sorted(bench.commands))
def test_a_place_for_results_that_is_a_folder_is_refused_at_once(name, tmp_path):
    papers = [str(tmp_path)] if name == "latex" else []
    done = CliRunner().invoke(main, ["bench", name, *papers, "--out", str(tmp_path)])
    assert done.exit_code == 2
    assert done.output == f"papergym: {tmp_path}: is a folder, which no file may replace; name a file to write\n"
