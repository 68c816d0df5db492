"""Which log-probs vLLM gives, and when they are those that a Completion promises."""

from typing import Literal

from papergym.errors import InputError
from papergym.model.generation.sampling import SamplingParams

# vLLM's --logprobs-mode: of softmax(logits), its default, or after temperature, top-k and top-p.
LogprobsMode = Literal["raw", "processed"]


def check_logprobs(mode: LogprobsMode, params: SamplingParams) -> None:
    """Raises InputError where the mode's log-probs are not those under softmax(logits / temperature), before top-k and top-p."""
    if mode == "raw" and params.temperature not in (0, 1):
        raise InputError(
            f"temperature {params.temperature}: vLLM's raw log-probs leave it out; start it with logprobs_mode processed_logprobs and set "
            "logprobs = 'processed', or sample at temperature 1"
        )
    if mode == "processed" and (params.top_p < 1 or params.top_k > 0 or params.temperature == 0):
        raise InputError("logprobs 'processed': with top_p, top_k or temperature 0 they are not those of the whole distribution; use 'raw'")
