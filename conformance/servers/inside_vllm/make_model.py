"""Texts -> models of one random layer, with a tokenizer that has Kimi's special tokens, and Kimi's prompt format.

    python make_model.py TEXTS FOLDER/k2 FOLDER/k3

The tokenizer is trained on the standard library and on the texts, so that a token has about four characters, as with
Kimi's own, and the usage of a response is like a real one.
"""

from __future__ import annotations

import json
import sys
import sysconfig
from pathlib import Path
from typing import Final

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

END_OF_MESSAGE: Final = {"k2": "<|im_end|>", "k3": "<|end_of_msg|>"}
SPECIAL: Final = (
    *("[BOS]", "[EOS]", "<|im_end|>", "<|im_user|>", "<|im_assistant|>", "<|im_system|>", "<|im_middle|>"),
    *("<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>"),
)
MARKERS: Final = (
    *("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<|tool_call_begin|>"),
    *("<|tool_call_argument_begin|>", "<|tool_call_end|>", "<think>", "</think>"),
)
"""One token each, but not special: Kimi's tokenizer shows them even where special tokens are skipped."""
WORDS: Final = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s+"  # as in tiktoken's patterns
VOCABULARY: Final = 16_000
MAX_POSITIONS: Final = 262_144


def main(texts: Path, folders: list[Path]) -> None:
    trained = tokenizer(texts)
    for folder in folders:
        write(folder, trained)


def tokenizer(texts: Path) -> Tokenizer:
    made = Tokenizer(models.BPE())
    words = pre_tokenizers.Split(Regex(WORDS), "isolated")
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.pre_tokenizer = pre_tokenizers.Sequence([words, byte_level])
    made.decoder = decoders.ByteLevel()
    files = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))[:150] + sorted(texts.glob("*.txt")) * 3
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, initial_alphabet=alphabet, show_progress=False)
    made.train([str(path) for path in files], trainer)
    made.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in SPECIAL])
    made.add_tokens([AddedToken(name, special=False, normalized=False) for name in MARKERS])
    return made


def write(folder: Path, trained: Tokenizer) -> None:
    generation = folder.name
    fast = PreTrainedTokenizerFast(
        tokenizer_object=trained,
        bos_token="[BOS]",
        eos_token=END_OF_MESSAGE[generation],
        clean_up_tokenization_spaces=False,
    )
    fast.chat_template = Path(__file__).with_name(f"{generation}.jinja").read_text("utf-8")
    fast.save_pretrained(str(folder))
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 128,
        "intermediate_size": 256,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "vocab_size": (len(fast) + 63) // 64 * 64,
        "max_position_embeddings": MAX_POSITIONS,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10_000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
        "bos_token_id": fast.bos_token_id,
        "eos_token_id": fast.eos_token_id,
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [fast.eos_token_id]}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), [Path(name) for name in sys.argv[2:]])
