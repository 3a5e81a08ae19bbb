"""Writes a GGUF file of llama.cpp with the sizes of a shape's config.json and random bf16 weights.

usage: random_gguf.py FOLDER_WITH_CONFIG FILE.gguf [--vocabulary]        (needs the packages gguf and numpy)

--vocabulary adds a made-up SentencePiece vocabulary, which llama.cpp's server needs in order to send text.
"""

import argparse
import json
import pathlib

import gguf
import numpy as np


def random_bf16(rng: np.random.Generator, n: int, k: int) -> np.ndarray:
    """Uniform numbers of variance 1 / k, cut to bf16: what `--load-format dummy` draws from. uint8 [n, 2 k]."""
    half_width = np.float32(np.sqrt(3.0 / k))
    out = np.empty((n, k), dtype=np.uint16)
    for begin in range(0, n, 4096):
        part = (rng.random((min(4096, n - begin), k), dtype=np.float32) * 2 - 1) * half_width
        out[begin : begin + len(part)] = part.view(np.uint32) >> 16
    return out.view(np.uint8)


N_BYTES = 256


def add_vocabulary(writer: gguf.GGUFWriter, n_vocab: int) -> None:
    """Unknown, begin and end, the 256 bytes, and pieces of a number each."""
    special, first_piece = ["<unk>", "<s>", "</s>"], 3 + N_BYTES
    tokens = special + [f"<0x{byte:02X}>" for byte in range(N_BYTES)] + [f"\u2581t{i}" for i in range(first_piece, n_vocab)]
    types = [gguf.TokenType.UNKNOWN, gguf.TokenType.CONTROL, gguf.TokenType.CONTROL]
    types += [gguf.TokenType.BYTE] * N_BYTES + [gguf.TokenType.NORMAL] * (n_vocab - first_piece)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * n_vocab)
    writer.add_token_types(types)
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(False)


def add_sizes(writer: gguf.GGUFWriter, config: dict) -> None:
    heads = config["num_attention_heads"]
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_rope_dimension_count(config["hidden_size"] // heads)
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_BF16)


def matrices(config: dict) -> list[tuple[str, int, int]]:
    """Name, rows, columns of each."""
    d = config["hidden_size"]
    kv = d // config["num_attention_heads"] * config["num_key_value_heads"]
    ff = config["intermediate_size"]
    found = [("token_embd", config["vocab_size"], d)]
    for i in range(config["num_hidden_layers"]):
        for name, n, k in (
            ("attn_q", d, d),
            ("attn_k", kv, d),
            ("attn_v", kv, d),
            ("attn_output", d, d),
            ("ffn_gate", ff, d),
            ("ffn_up", ff, d),
            ("ffn_down", d, ff),
        ):
            found.append((f"blk.{i}.{name}", n, k))
    if not config["tie_word_embeddings"]:
        found.append(("output", config["vocab_size"], d))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("--vocabulary", action="store_true", help="with a made-up vocabulary")
    options = parser.parse_args()
    file = options.file
    config = json.loads((options.folder / "config.json").read_text())
    part = file.with_suffix(".part")
    writer = gguf.GGUFWriter(part, "llama", use_temp_file=True)
    add_sizes(writer, config)
    if options.vocabulary:
        add_vocabulary(writer, config["vocab_size"])
    else:
        writer.add_tokenizer_model("none")
    ones = np.ones(config["hidden_size"], dtype=np.float32)
    rng = np.random.default_rng(0)
    for name, n, k in matrices(config):
        writer.add_tensor(f"{name}.weight", random_bf16(rng, n, k), raw_dtype=gguf.GGMLQuantizationType.BF16)
    for i in range(config["num_hidden_layers"]):
        writer.add_tensor(f"blk.{i}.attn_norm.weight", ones)
        writer.add_tensor(f"blk.{i}.ffn_norm.weight", ones)
    writer.add_tensor("output_norm.weight", ones)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    part.rename(file)


if __name__ == "__main__":
    main()
