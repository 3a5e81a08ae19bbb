"""A Llama in PyTorch for training, with the tensor names of Hugging Face, and its export."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from .rows import BOS, END, PAD


@dataclass(frozen=True)
class Shape:
    """The shape of the demo model: 4.7 M parameters."""

    n_vocab: int = 1024
    d_model: int = 256
    n_layers: int = 6
    n_heads: int = 4
    n_kv_heads: int = 2
    head_dim: int = 64
    d_ffn: int = 704
    rope_theta: float = 10000.0
    norm_eps: float = 1e-5
    max_len: int = 4096


class _Attention(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        d_query, d_kv = shape.n_heads * shape.head_dim, shape.n_kv_heads * shape.head_dim
        self.q_proj = nn.Linear(shape.d_model, d_query, bias=False)
        self.k_proj = nn.Linear(shape.d_model, d_kv, bias=False)
        self.v_proj = nn.Linear(shape.d_model, d_kv, bias=False)
        self.o_proj = nn.Linear(d_query, shape.d_model, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: BlockMask | Tensor) -> Tensor:
        n_rows, length, _ = x.shape
        s = self.shape

        def heads(y: Tensor, n: int) -> Tensor:
            return y.view(n_rows, length, n, s.head_dim).transpose(1, 2)

        def rotate(y: Tensor) -> Tensor:
            low, high = y.chunk(2, dim=-1)
            return (y * cos + torch.cat((-high, low), dim=-1) * sin).to(y.dtype)

        q = rotate(heads(self.q_proj(x), s.n_heads))
        k = rotate(heads(self.k_proj(x), s.n_kv_heads))
        v = heads(self.v_proj(x), s.n_kv_heads)
        group = s.n_heads // s.n_kv_heads
        k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
        if isinstance(mask, Tensor):
            out = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        else:
            out = flex_attention(q, k, v, block_mask=mask)
        return self.o_proj(out.transpose(1, 2).reshape(n_rows, length, -1))


class _FeedForward(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.d_model, shape.d_ffn, bias=False)
        self.up_proj = nn.Linear(shape.d_model, shape.d_ffn, bias=False)
        self.down_proj = nn.Linear(shape.d_ffn, shape.d_model, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class _Layer(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.input_layernorm = nn.RMSNorm(shape.d_model, shape.norm_eps)
        self.self_attn = _Attention(shape)
        self.post_attention_layernorm = nn.RMSNorm(shape.d_model, shape.norm_eps)
        self.mlp = _FeedForward(shape)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: BlockMask | Tensor) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, mask)
        return x + self.mlp(self.post_attention_layernorm(x))


class DemoNetwork(nn.Module):
    """ids, position [rows, len] -> logits [rows, len, vocab]; the output head is the embedding.

    `mask` says who sees whom: a BlockMask on a GPU, else booleans of shape [rows, 1, len, len].
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.embed_tokens = nn.Embedding(shape.n_vocab, shape.d_model)
        self.layers = nn.ModuleList(_Layer(shape) for _ in range(shape.n_layers))
        self.norm = nn.RMSNorm(shape.d_model, shape.norm_eps)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                residual = name.endswith(("o_proj.weight", "down_proj.weight"))
                nn.init.normal_(parameter, std=0.02 / (2 * shape.n_layers) ** 0.5 if residual else 0.02)
        half = torch.arange(0, shape.head_dim, 2, dtype=torch.float32) / shape.head_dim
        self.register_buffer("inverse_frequency", shape.rope_theta**-half, persistent=False)

    def forward(self, ids: Tensor, position: Tensor, mask: BlockMask | Tensor) -> Tensor:
        angle = position.float()[:, None, :, None] * self.inverse_frequency
        angle = torch.cat((angle, angle), dim=-1)
        cos, sin = angle.cos(), angle.sin()
        x = self.embed_tokens(ids)
        for layer in self.layers:
            x = layer(x, cos, sin, mask)
        return functional.linear(self.norm(x), self.embed_tokens.weight)


def export(network: DemoNetwork, folder: Path) -> None:
    """Writes config.json, generation_config.json and bf16 model.safetensors in the Hugging Face layout."""
    folder.mkdir(parents=True, exist_ok=True)
    s = network.shape
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": s.n_vocab,
        "hidden_size": s.d_model,
        "intermediate_size": s.d_ffn,
        "num_hidden_layers": s.n_layers,
        "num_attention_heads": s.n_heads,
        "num_key_value_heads": s.n_kv_heads,
        "head_dim": s.head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": s.max_len,
        "rms_norm_eps": s.norm_eps,
        "rope_theta": s.rope_theta,
        "rope_scaling": None,
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": True,
        "initializer_range": 0.02,
        "pad_token_id": PAD,
        "bos_token_id": BOS,
        "eos_token_id": END,
        "torch_dtype": "bfloat16",
        "use_cache": True,
    }
    generation = {"bos_token_id": BOS, "eos_token_id": END, "pad_token_id": PAD, "do_sample": False}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    (folder / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n")
    tensors = {f"model.{k}": v.detach().to("cpu", torch.bfloat16).contiguous() for k, v in network.state_dict().items()}
    save_file(tensors, str(folder / "model.safetensors"), metadata={"format": "pt"})
