"""What samples: the interface, and engines by kind."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from papergym.errors import InputError
from papergym.model.generation.sampling import Completion, SamplingParams
from papergym.registry import resolve

# kind: a function that takes the rest of the specification as keywords. Imported on first use.
ENGINES: dict[str, Any] = {
    "torch": "papergym.model.generation.torch_engine:open_torch_engine",
    "http": "papergym.model.generation.http_engine:open_http_engine",
    "vllm": "papergym.model.generation.vllm_engine:open_vllm_engine",
}


class Engine(Protocol):
    """Anything that turns prompts into completions."""

    def generate(
        self, prompts: Sequence[Sequence[int]], params: SamplingParams, *, on_progress: Callable[[int], None] | None = None
    ) -> list[list[Completion]]:
        """params.n completions of each prompt (token ids), in order. on_progress gets the number of tokens sampled so far."""


def open_engine(spec: Mapping[str, Any] | str) -> Engine:
    """An engine from its specification: {"kind": "torch", "path": …, "dtype": "bfloat16", …}, or "torch:PATH" for short.

    kind: a built-in name or module:function; the other entries are its keywords.
    Raises InputError naming the entry that is missing, unknown or wrong.
    """
    if isinstance(spec, str):
        kind, _, path = spec.partition(":")
        if not path:
            raise InputError(f"engine {spec!r}: the form is KIND:PATH, for example torch:smollm2-135m")
        spec = {"kind": kind, "path": path}
    if not isinstance(spec.get("kind"), str):
        raise InputError(f"engine: the entry 'kind' is needed, one of {', '.join(ENGINES)} or module:function")
    return resolve("engine", spec["kind"], ENGINES)(**{key: value for key, value in spec.items() if key != "kind"})
