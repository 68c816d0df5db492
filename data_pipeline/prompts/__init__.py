"""What language models are told when they make environments: prompts.toml, filled in."""

import hashlib
import tomllib
from dataclasses import dataclass
from importlib.resources import files
from typing import Any


@dataclass(frozen=True)
class Prompts:
    """texts: the tables of prompts.toml. digest: of the whole file, for provenance."""

    texts: dict[str, Any]
    digest: str

    def messages(self, name: str, **values: Any) -> list[dict[str, str]]:
        """System and user message of a prompt. values: for its places in braces; a value's own braces mean nothing."""
        return [{"role": "system", "content": self.texts["system"]}, {"role": "user", "content": self.texts[name].format(**values)}]


def _load() -> Prompts:
    data = files(__name__).joinpath("prompts.toml").read_bytes()
    return Prompts(tomllib.loads(data.decode()), hashlib.sha256(data).hexdigest()[:12])


PROMPTS = _load()
