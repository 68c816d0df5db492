"""What a decoder looks like: read from a Hugging Face config.json or from GGUF metadata, checked before any weight is touched."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from papergym.errors import InputError

ARCHITECTURES = {"Qwen3ForCausalLM": "qwen3", "Qwen3MoeForCausalLM": "qwen3_moe", "Qwen2ForCausalLM": "qwen2", "LlamaForCausalLM": "llama"}
_GGUF_ARCHITECTURES = ("qwen3", "qwen2", "llama")
_REQUIRED = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "rms_norm_eps",
    "max_position_embeddings",
)
# What an optional field of config.json must be, where it is there.
_KINDS: dict[str, tuple[type, str]] = {
    **dict.fromkeys(("architectures", "layer_types"), (str, "a list of strings")),
    **dict.fromkeys(("rope_scaling", "rope_parameters", "quantization_config"), (dict, "an object")),
    **dict.fromkeys(("tie_word_embeddings", "attention_bias", "mlp_bias", "use_sliding_window", "norm_topk_prob"), (bool, "true or false")),
    **dict.fromkeys(("bos_token_id", "pad_token_id", "max_window_layers", "sliding_window"), (int, "an integer")),
    "mlp_only_layers": (int, "a list of integers"),
    "rope_theta": (float, "a number"),
    "hidden_act": (str, "a string"),
    "model_type": (str, "a string"),
}
_EXPERTS = ("num_experts", "num_experts_per_tok", "moe_intermediate_size", "norm_topk_prob", "decoder_sparse_step")


@dataclass(frozen=True)
class ModelConfig:
    """A Qwen3, Qwen2 or Llama decoder. Fields carry their Hugging Face names.

    attention_bias: biases on q, k and v, and for Qwen3 and Llama on the output projection too. Qwen3 normalises every
    query and key head (`qk_norm`). Raises InputError when heads don't divide, head_dim is odd, or the experts' fields don't fit together.
    """

    architecture: str  # "qwen3" | "qwen3_moe" | "qwen2" | "llama"
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    rms_norm_eps: float
    max_position_embeddings: int
    rope_theta: float = 10000.0
    tie_word_embeddings: bool = False
    attention_bias: bool = False
    mlp_bias: bool = False
    num_experts: int = 0  # of a qwen3_moe layer
    num_experts_per_tok: int = 0
    moe_intermediate_size: int = 0
    norm_topk_prob: bool = False  # the weights of a token's experts sum to 1
    decoder_sparse_step: int = 1  # every so many layers one has experts
    mlp_only_layers: tuple[int, ...] = ()  # but these layers have none
    eos_token_ids: tuple[int, ...] = ()  # ids that end a completion; the first one is the tokenizer's end of sequence
    bos_token_id: int | None = None
    pad_token_id: int | None = None

    def __post_init__(self) -> None:
        if self.architecture not in ARCHITECTURES.values():
            raise InputError(f"architecture {self.architecture!r} is not supported: use one of {', '.join(ARCHITECTURES.values())}")
        for name in (*_REQUIRED, "num_key_value_heads", "head_dim", "rope_theta"):
            _check_positive(name, getattr(self, name))
        if self.architecture == "qwen3_moe":
            for name in ("num_experts", "num_experts_per_tok", "moe_intermediate_size", "decoder_sparse_step"):
                _check_positive(name, getattr(self, name))
            if self.num_experts_per_tok > self.num_experts:
                raise InputError(f"num_experts_per_tok is {self.num_experts_per_tok}: there are {self.num_experts} experts")
        if self.num_attention_heads % self.num_key_value_heads:
            raise InputError(
                f"num_key_value_heads is {self.num_key_value_heads}: it must divide num_attention_heads, {self.num_attention_heads}"
            )
        for token in self.eos_token_ids:
            if isinstance(token, bool) or not isinstance(token, int):
                raise InputError(f"eos_token_id {token!r}: a token id or a list of them is needed")
        if self.head_dim % 2:
            raise InputError(f"head_dim is {self.head_dim}: rotary embeddings need an even number")

    @property
    def qk_norm(self) -> bool:
        """Whether each query and key head passes an RMSNorm before RoPE."""
        return self.architecture in ("qwen3", "qwen3_moe")

    def has_experts(self, layer: int) -> bool:
        """Whether a layer (from 0) has a mixture of experts in place of one MLP."""
        mixture = self.architecture == "qwen3_moe" and layer not in self.mlp_only_layers
        return mixture and (layer + 1) % self.decoder_sparse_step == 0

    @property
    def attention_output_bias(self) -> bool:
        """Whether o_proj has a bias: Qwen2 has biases on q, k and v only."""
        return self.attention_bias and self.architecture != "qwen2"

    @classmethod
    def from_hf(cls, config: Mapping[str, Any], generation: Mapping[str, Any] | None = None) -> "ModelConfig":
        """Reads the contents of config.json and, where there is one, generation_config.json (its stop ids go first).

        Understands `rope_parameters` and the older `rope_theta` with `rope_scaling`. Attention dropout is ignored.
        Raises InputError naming the field and the value for whatever the decoder doesn't compute.
        """
        for contents in (config, generation):
            if not isinstance(contents, Mapping | None):
                raise InputError(f"a JSON object is needed, not {type(contents).__name__}")
        _check_kinds(config)
        architecture = _hf_architecture(config)
        for name in _REQUIRED:
            _check_positive(name, config.get(name))
        if (activation := config.get("hidden_act", "silu")) != "silu":
            raise InputError(f"hidden_act {activation!r} is not supported: only 'silu' is")
        if config.get("quantization_config"):
            method = config["quantization_config"].get("quant_method")
            raise InputError(f"quantization_config (method {method!r}) is not supported: use the unquantised checkpoint or a GGUF file")
        _reject_sliding_window(config)
        heads, hidden_size = config["num_attention_heads"], config["hidden_size"]
        stop_ids = (generation or {}).get("eos_token_id")
        experts = _hf_experts(config) if architecture == "qwen3_moe" else {}
        return cls(
            architecture=architecture,
            **{name: config[name] for name in _REQUIRED},
            num_key_value_heads=config.get("num_key_value_heads") or heads,
            head_dim=config.get("head_dim") or (128 if architecture == "qwen3" else hidden_size // heads),
            rope_theta=_hf_rope_theta(config),
            tie_word_embeddings=bool(config.get("tie_word_embeddings", False)),
            attention_bias=architecture == "qwen2" or bool(config.get("attention_bias", False)),
            mlp_bias=architecture == "llama" and bool(config.get("mlp_bias", False)),
            **experts,
            eos_token_ids=_token_ids(stop_ids if stop_ids is not None else config.get("eos_token_id")),
            bos_token_id=config.get("bos_token_id"),
            pad_token_id=config.get("pad_token_id"),
        )

    @classmethod
    def from_gguf(cls, metadata: Mapping[str, Any], tensors: Collection[str]) -> "ModelConfig":
        """Reads GGUF metadata. tensors: the tensor names of the file, which tell of biases and of a tied head.

        Raises InputError naming the key and the value for whatever the decoder doesn't compute.
        """
        architecture = metadata.get("general.architecture", "")
        if architecture not in _GGUF_ARCHITECTURES:
            raise InputError(f"general.architecture {architecture!r} is not supported: use one of {', '.join(_GGUF_ARCHITECTURES)}")
        if (parts := metadata.get("split.count", 1)) > 1:
            raise InputError(f"split.count {parts} is not supported: merge the parts with llama-gguf-split --merge")

        def value(key: str, default: Any = None) -> Any:
            found = metadata.get(f"{architecture}.{key}", default)
            if found is None:
                raise InputError(f"{architecture}.{key} is missing")
            return found

        hidden_size, heads = value("embedding_length"), value("attention.head_count")
        _check_positive(f"{architecture}.embedding_length", hidden_size)
        _check_positive(f"{architecture}.attention.head_count", heads)
        head_dim = value("attention.key_length", hidden_size // heads)
        for key, expected in (
            ("rope.scaling.type", "none"),
            ("rope.dimension_count", head_dim),
            ("attention.value_length", head_dim),
            ("attention.sliding_window", 0),
            ("expert_count", 0),
        ):
            if (found := value(key, expected)) != expected:
                raise InputError(f"{architecture}.{key} {found!r} is not supported: only {expected!r} is")
        if "rope_freqs.weight" in tensors:
            raise InputError("tensor rope_freqs.weight is not supported: it scales the rotary frequencies (rope type 'llama3')")
        tokens = "tokenizer.ggml.tokens"
        stop_ids = dict.fromkeys(metadata.get(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot"))
        return cls(
            architecture=architecture,
            vocab_size=value("vocab_size", len(metadata[tokens]) if tokens in metadata else None),
            hidden_size=hidden_size,
            intermediate_size=value("feed_forward_length"),
            num_hidden_layers=value("block_count"),
            num_attention_heads=heads,
            num_key_value_heads=value("attention.head_count_kv", heads),
            head_dim=head_dim,
            rms_norm_eps=value("attention.layer_norm_rms_epsilon"),
            max_position_embeddings=value("context_length"),
            rope_theta=value("rope.freq_base", 10000.0),
            tie_word_embeddings="output.weight" not in tensors,
            attention_bias="blk.0.attn_q.bias" in tensors,
            mlp_bias="blk.0.ffn_up.bias" in tensors,
            eos_token_ids=tuple(i for i in stop_ids if i is not None),
            bos_token_id=metadata.get("tokenizer.ggml.bos_token_id"),
            pad_token_id=metadata.get("tokenizer.ggml.padding_token_id"),
        )

    def to_hf(self) -> dict[str, Any]:
        """The contents of a config.json from which transformers (4 and 5) and vLLM build the same model."""
        names = {short: name for name, short in ARCHITECTURES.items()}
        copied = (*_REQUIRED, "num_key_value_heads", "head_dim", "rope_theta", "tie_word_embeddings", "bos_token_id", "pad_token_id")
        config = {name: getattr(self, name) for name in copied} | {
            "architectures": [names[self.architecture]],
            "model_type": self.architecture,
            "hidden_act": "silu",
            "eos_token_id": list(self.eos_token_ids) or None,
            "rope_parameters": {"rope_type": "default", "rope_theta": self.rope_theta},
        }
        if self.architecture != "qwen2":
            config["attention_bias"] = self.attention_bias
        if self.architecture == "llama":
            config["mlp_bias"] = self.mlp_bias
        if self.architecture == "qwen3_moe":
            config |= {name: getattr(self, name) for name in _EXPERTS} | {"mlp_only_layers": list(self.mlp_only_layers)}
        return config

    def num_parameters(self, embeddings: bool = True) -> int:
        """Number of parameters, a tied head counted once. embeddings=False leaves out the embedding and the head."""
        layers = range(self.num_hidden_layers)
        biases = self.attention_bias * (self.num_attention_heads + 2 * self.num_key_value_heads) * self.head_dim
        biases += self.attention_output_bias * self.hidden_size + self.mlp_bias * (2 * self.intermediate_size + self.hidden_size)
        norms = 2 * self.hidden_size + 2 * self.head_dim * self.qk_norm
        total = sum(self._matrix_parameters(layer, self.num_experts) + biases + norms for layer in layers) + self.hidden_size
        return total + embeddings * (1 if self.tie_word_embeddings else 2) * self.vocab_size * self.hidden_size

    def flops_per_token(self, sequence_length: int, head: bool = True) -> float:
        """FLOPs of one forward pass, per token, averaged over a causal sequence of the given length.

        A multiply-add is two; norms, RoPE and softmax aren't counted. A backward pass costs two forwards when every weight is
        trained, about one when the base is frozen under LoRA. head: whether hidden states go through the [V, H] head.
        """
        context = (sequence_length + 1) / 2
        scores = 4 * self.num_attention_heads * self.head_dim * context  # q·kᵀ and p·v
        layers = range(self.num_hidden_layers)
        matrices = sum(self._matrix_parameters(layer, self.num_experts_per_tok) for layer in layers)
        return 2 * matrices + self.num_hidden_layers * scores + head * 2 * self.vocab_size * self.hidden_size

    def _matrix_parameters(self, layer: int, experts: int) -> int:
        """Parameters of a layer's matrices, with so many experts where it has experts."""
        heads = self.num_attention_heads + self.num_key_value_heads
        attention = 2 * self.hidden_size * heads * self.head_dim
        if self.has_experts(layer):
            return attention + self.hidden_size * (self.num_experts + 3 * experts * self.moe_intermediate_size)
        return attention + 3 * self.hidden_size * self.intermediate_size


def _check_positive(name: str, value: Any) -> None:
    if value is None:
        raise InputError(f"{name} is missing")
    kinds = int | float if name in ("rms_norm_eps", "rope_theta") else int
    if isinstance(value, bool) or not isinstance(value, kinds) or not 0 < value < float("inf"):
        raise InputError(f"{name} is {value!r}: a positive {'number' if kinds is not int else 'integer'} is needed")


def _check_kinds(config: Mapping[str, Any]) -> None:
    for name, (kind, words) in _KINDS.items():
        value = config.get(name)
        if words.startswith("a list"):
            fits = isinstance(value, list) and all(_is_a(item, kind) for item in value)
        else:
            fits = _is_a(value, kind)
        if value is not None and not fits:
            raise InputError(f"{name} is {value!r}: {words} is needed")


def _is_a(value: Any, kind: type) -> bool:
    """As JSON sees it: true is no number, and an integer is a number."""
    return isinstance(value, (int, float) if kind is float else kind) and (kind is bool or not isinstance(value, bool))


def _hf_architecture(config: Mapping[str, Any]) -> str:
    names = config.get("architectures") or []
    if not names and config.get("model_type") in ARCHITECTURES.values():
        return config["model_type"]
    name = names[0] if names else config.get("model_type")
    if name not in ARCHITECTURES:
        raise InputError(f"architecture {name!r} is not supported: use one of {', '.join(ARCHITECTURES)}")
    return ARCHITECTURES[name]


def _hf_experts(config: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a mixture of experts; transformers 5 writes num_experts as num_local_experts."""
    experts = {name: config.get(name) for name in _EXPERTS}
    experts["num_experts"] = config.get("num_experts", config.get("num_local_experts"))
    experts["norm_topk_prob"] = bool(config.get("norm_topk_prob", False))
    experts["decoder_sparse_step"] = config.get("decoder_sparse_step", 1)
    return experts | {"mlp_only_layers": tuple(config.get("mlp_only_layers") or ())}


def _hf_rope_theta(config: Mapping[str, Any]) -> float:
    """The rotary base; transformers' default of 10000 when neither form states it (Llama 2 checkpoints don't)."""
    parameters = {**(config.get("rope_scaling") or {}), **(config.get("rope_parameters") or {})}
    rope_type = parameters.get("rope_type", parameters.get("type", "default"))
    if rope_type != "default":
        raise InputError(f"rope type {rope_type!r} is not supported: only 'default' is")
    if unknown := sorted(set(parameters) - {"rope_type", "type", "rope_theta", "partial_rotary_factor"}):
        raise InputError(f"rope parameter {unknown[0]!r} ({parameters[unknown[0]]!r}) is not supported: only rope_theta is")
    partial = parameters.get("partial_rotary_factor", config.get("partial_rotary_factor"))
    if partial not in (None, 1):
        raise InputError(f"partial_rotary_factor {partial!r} is not supported: only 1 is")
    theta = parameters.get("rope_theta") or config.get("rope_theta") or 10000.0
    _check_positive("rope_theta", theta)
    return float(theta)


def _reject_sliding_window(config: Mapping[str, Any]) -> None:
    layer_types = config.get("layer_types")
    if layer_types is None:
        slides = config.get("use_sliding_window") and config.get("sliding_window") is not None
        first = config.get("max_window_layers", 28)  # transformers' default; layers below it attend to everything
        layer_types = ["sliding_attention"] if slides and first < config["num_hidden_layers"] else []
    if other := sorted(set(layer_types) - {"full_attention"}):
        raise InputError(
            f"layer type {other[0]!r} (sliding_window {config.get('sliding_window')!r}) is not supported: only full attention is"
        )


def _token_ids(value: int | list[int] | None) -> tuple[int, ...]:
    if value is None:
        return ()
    return tuple(value) if isinstance(value, list) else (value,)
