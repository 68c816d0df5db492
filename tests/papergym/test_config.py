from dataclasses import dataclass, field
from typing import Literal

import pytest

from papergym.config import load_config, to_mapping
from papergym.errors import InputError


@dataclass(frozen=True)
class Optim:
    lr: float = 1e-3
    schedule: Literal["constant", "cosine"] = "constant"
    clip: float | None = None


@dataclass(frozen=True)
class Recipe:
    steps: int
    optim: Optim = field(default_factory=Optim)
    targets: tuple[str, ...] = ("q_proj",)
    name: str | None = None
    warm: Optim | None = None


def write(tmp_path, text):
    path = tmp_path / "recipe.toml"
    path.write_text(text)
    return path


def test_a_byte_order_mark_is_no_content(tmp_path):
    assert load_config(Recipe, write(tmp_path, "\ufeffsteps = 4")).steps == 4


def test_an_optional_table(tmp_path):
    assert load_config(Recipe, write(tmp_path, "steps = 1")).warm is None
    assert load_config(Recipe, write(tmp_path, "steps = 1\n[warm]\nlr = 3"), ["warm.clip=2"]).warm == Optim(3.0, clip=2.0)
    with pytest.raises(InputError, match=r"'warm\.rate'"):
        load_config(Recipe, write(tmp_path, "steps = 1\n[warm]\nrate = 3"))


def test_toml_and_overrides_become_the_dataclass(tmp_path):
    path = write(tmp_path, 'steps = 3\ntargets = ["a", "b"]\n[optim]\nlr = 1\n')
    recipe = load_config(Recipe, path, ["optim.clip=0.5", "optim.schedule=cosine", "steps=7", "name=runs/x y"])
    assert recipe == Recipe(7, Optim(1.0, "cosine", 0.5), ("a", "b"), "runs/x y")
    assert isinstance(recipe.optim.lr, float)
    assert to_mapping(recipe)["optim"] == {"lr": 1.0, "schedule": "cosine", "clip": 0.5}


@pytest.mark.parametrize(
    ("text", "overrides", "words"),
    [
        ("steps = 1\nstep = 2", [], ["'step'", "steps, optim"]),
        ("steps = 1\n[optim]\nlearning = 2", [], ["'optim.learning'", "lr, schedule"]),
        ("steps = 1.5", [], ["'steps'", "1.5", "int"]),
        ("steps = true", [], ["'steps'", "True", "int"]),
        ("", [], ["'steps'", "missing"]),
        ("steps = 1", ["optim.schedule=linear"], ["'optim.schedule'", "'linear'", "'constant', 'cosine'"]),
        ("steps = 1", ["optim.lr=fast"], ["'optim.lr'", "'fast'", "float"]),
        ("steps = 1", ["optim=3"], ["'optim'", "table"]),
        ("steps = 1", ["optim.lr"], ["key=value"]),
        ("steps = 1", ["steps.x=3"], ["'steps'", "not a table"]),
        ("steps = ", [], ["not valid TOML"]),
        ("steps = 1" + 5000 * "0", [], ["recipe.toml", "can't be read"]),
        ("steps = 1" + 500 * "0", [], ["'steps'", "501 characters", "64 bits"]),
        ("steps = 1\noptim.lr = 1" + 500 * "0", [], ["'optim.lr'", "64 bits"]),
        ("steps = 1\nname = " + 5000 * "[" + 5000 * "]", [], ["recipe.toml", "more than 50"]),
        ("steps = 1", ["name=" + 5000 * "["], ["--set", "more than 50"]),
        ("steps = 1", ["steps=1" + 5000 * "0"], ["--set", "can't be read"]),
        ("steps = 1", ["name" + 5000 * ".x" + "=1"], ["more than 50"]),
        ('steps = 1\nname = "a\\u0000b"', [], ["'name'", "NUL"]),
        ('steps = 1\ntargets = ["a\\u0000b"]', [], ["'targets[0]'", "NUL"]),
        ("steps = 1", ["steps=2\nfoo=1"], ["--set steps=2", "more than one line"]),
    ],
)
def test_mistakes_name_the_key_the_value_and_what_is_allowed(tmp_path, text, overrides, words):
    with pytest.raises(InputError) as error:
        load_config(Recipe, write(tmp_path, text), overrides)
    assert all(word in str(error.value) for word in words), str(error.value)


def test_a_name_that_no_file_can_have():
    with pytest.raises(InputError, match=r"file 'a\\x00b\.toml': the name holds the character NUL"):
        load_config(Recipe, "a\0b.toml")
