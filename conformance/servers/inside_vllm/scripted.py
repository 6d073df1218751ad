"""The script in a prompt -> the tokens that the model writes, one after another, as a logits processor of vLLM."""

from __future__ import annotations

import re
from typing import Any, Final

import torch
from transformers import AutoTokenizer
from vllm.v1.sample.logits_processor import LogitsProcessor, MoveDirectionality

SCRIPT: Final = re.compile(r"SCRIPT:([0-9a-f,]+)")
"""The texts to write, in hexadecimal; `conformance/servers/script.py` writes it."""
RESULT: Final = re.compile(r'## Return of |message role="tool"')
"""How the prompt of K2 and of K3 shows the result of a call."""


class Scripted(LogitsProcessor):  # type: ignore[misc]  # vLLM is not installed where this is checked
    """Makes every request write the last script in its prompt, and nothing if there is none.

    A script is one text for each round: after N results of tools, the model writes the text with the index N, and after
    the last text that one again.
    """

    @classmethod
    def validate_params(cls, _params: Any) -> None:
        pass

    def __init__(self, vllm_config: Any, _device: Any, _is_pin_memory: bool) -> None:
        self._tokenizer = AutoTokenizer.from_pretrained(vllm_config.model_config.tokenizer)
        self._rows: dict[int, tuple[list[int], list[int]]] = {}
        """Row of the batch -> the tokens to write, and vLLM's own list of those that are written."""

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update: Any) -> None:
        if batch_update is None:
            return
        for row in batch_update.removed:
            self._rows.pop(row, None)
        for row, _params, prompt, written in batch_update.added:
            self._rows[row] = (self._tokens(prompt), written)
        for source, target, direction in batch_update.moved:
            moved, replaced = self._rows.pop(source, None), self._rows.pop(target, None)
            if moved is not None:
                self._rows[target] = moved
            if direction == MoveDirectionality.SWAP and replaced is not None:
                self._rows[source] = replaced

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (tokens, written) in self._rows.items():
            logits[row].fill_(float("-inf"))
            logits[row, tokens[min(len(written), len(tokens) - 1)]] = 0.0
        return logits

    def _tokens(self, prompt: list[int]) -> list[int]:
        end: int = self._tokenizer.eos_token_id
        text: str = self._tokenizer.decode(prompt, skip_special_tokens=False)
        scripts = list(SCRIPT.finditer(text))
        if not scripts:
            return [end]
        texts = scripts[-1][1].split(",")
        results = len(RESULT.findall(text, scripts[-1].end()))
        chosen = bytes.fromhex(texts[min(results, len(texts) - 1)]).decode("utf-8")
        return [*self._tokenizer.encode(chosen, add_special_tokens=False), end]
