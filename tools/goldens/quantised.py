"""Writes tests/goldens/quantised: tiny random Llamas in the formats that quantised checkpoints have, each with the logits that
Transformers computes in float32 from the weights that the format stands for.

Tensors of compressed-tensors are packed, and unpacked for Transformers, by that package; the others by the formulas of
AutoGPTQ, GPTQModel, AutoAWQ, DeepSeek and ModelOpt, and AWQ's are compared with what compressed-tensors makes of them."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path

import torch
from compressed_tensors.compressors.mxfp4.base import MXFP4PackedCompressor
from compressed_tensors.compressors.naive_quantized import FloatQuantizationCompressor, IntQuantizationCompressor
from compressed_tensors.compressors.nvfp4.base import NVFP4PackedCompressor
from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
from compressed_tensors.compressors.pack_quantized import PackedQuantizationCompressor
from compressed_tensors.entrypoints.convert.converters.autoawq import AutoAWQConverter
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from compressed_tensors.quantization.lifecycle.forward import dequantize
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

N_VOCAB = 64
N_PROMPT = 24
N_LONG_PROMPT = 128
GROUP = 32
NVFP4_GROUP = 16
F8_MAX = 448.0
INT8_MAX = 127.0
INT8_BLOCK = 128
F4_MAX = 6.0
F4_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
Tensors = dict[str, torch.Tensor]


def _config(hidden: int, quantization: dict) -> dict:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": N_VOCAB,
        "hidden_size": hidden,
        "intermediate_size": hidden,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16 if hidden < 128 else 32,
        "hidden_act": "silu",
        "max_position_embeddings": 256,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "torch_dtype": "bfloat16",
        "quantization_config": quantization,
    }


def _pack_words(values: torch.Tensor, bits: int) -> torch.Tensor:
    """Integers [rows, columns] as words [rows * bits / 32, columns], the first row in the lowest bits."""
    per_word = 32 // bits
    words = torch.zeros(values.shape[0] // per_word, values.shape[1], dtype=torch.int64)
    for i in range(per_word):
        words |= values[i::per_word].long() << (bits * i)
    return torch.where(words >= 2**31, words - 2**32, words).int()


def _f8_blocks(weight: torch.Tensor, size: int = 128) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """float8 values, scales and what they stand for: DeepSeek's blocks, whose last may be smaller."""
    n_rows, n_columns = (-(-n // size) for n in weight.shape)
    scales = torch.empty(n_rows, n_columns)
    values = torch.empty(weight.shape, dtype=torch.float8_e4m3fn)
    dense = torch.empty(weight.shape)
    for i in range(n_rows):
        for j in range(n_columns):
            part = (slice(i * size, (i + 1) * size), slice(j * size, (j + 1) * size))
            scales[i, j] = (weight[part].abs().max() / F8_MAX).bfloat16().float()
            values[part] = (weight[part] / scales[i, j]).clamp(-F8_MAX, F8_MAX).to(torch.float8_e4m3fn)
            dense[part] = values[part].float() * scales[i, j]
    return values, scales, dense


def _fp8_block(weight: torch.Tensor, _: int) -> tuple[Tensors, torch.Tensor]:
    values, scales, dense = _f8_blocks(weight)
    return {"weight": values, "weight_scale_inv": scales.bfloat16()}, dense


def _fp8_tensor(weight: torch.Tensor, _: int) -> tuple[Tensors, torch.Tensor]:
    """Mistral's names, one scale for a tensor, scales of activations that are not read."""
    scale = weight.abs().max() / F8_MAX
    values = (weight / scale).to(torch.float8_e4m3fn)
    tensors = {"weight": values, "weight_scale_inv": scale.reshape(()), "activation_scale": torch.tensor(0.02)}
    return tensors, values.float() * scale


def _by_package(compressor: type, arguments: dict, group: int = 0):
    """A format of compressed-tensors: its package packs and unpacks. Scales are of `group` columns, of a row, or of a block."""
    args = QuantizationArgs(**arguments)
    scheme = QuantizationScheme(targets=["Linear"], weights=args)

    def make(weight: torch.Tensor, _: int) -> tuple[Tensors, torch.Tensor]:
        n, k = weight.shape
        state: Tensors = {"weight": weight.bfloat16()}
        if args.type == "float" and str(args.strategy) == "block":
            state["weight_scale"] = _f8_blocks(weight)[1].bfloat16()
        else:
            parts = weight.reshape(n, -1, group or k)
            most = F8_MAX if args.type == "float" else 2 ** (args.num_bits - 1) - 1
            low, high = parts.amin(-1), parts.amax(-1)
            if args.symmetric:
                state["weight_scale"] = (parts.abs().amax(-1) / most).bfloat16()
            else:
                state["weight_scale"] = ((high - low) / (2 * most)).bfloat16()
                zeros = torch.round(-low / state["weight_scale"].float()) - (most + 1)
                state["weight_zero_point"] = zeros.clamp(-most - 1, most).to(torch.int8)
        packed = compressor.compress(state, scheme)
        # The package's result has the dtype of the scales.
        return packed, compressor.decompress({**packed, "weight_scale": packed["weight_scale"].float()}, scheme)["weight"]

    return make


def _f4_by_package(compressor: type, arguments: dict):
    """NVFP4 or MXFP4 of compressed-tensors. Its package unpacks to bfloat16 unless its parts are called one by one."""
    args = QuantizationArgs(**arguments)
    scheme = QuantizationScheme(targets=["Linear"], weights=args)

    def make(weight: torch.Tensor, _: int) -> tuple[Tensors, torch.Tensor]:
        n, k = weight.shape
        largest = weight.reshape(n, -1, args.group_size).abs().amax(-1)
        state: Tensors = {"weight": weight}
        if args.group_size == NVFP4_GROUP:
            inverse = F8_MAX * F4_MAX / weight.abs().max()
            state["weight_global_scale"] = inverse.reshape(1)
            scales = (largest / F4_MAX * inverse).to(torch.float8_e4m3fn).float()
        else:
            scales = torch.exp2(torch.floor(torch.log2(largest)) - 2)
        packed = compressor.compress({**state, "weight_scale": scales}, scheme)
        assert torch.equal(compressor._decompress_scale(packed["weight_scale"], torch.float32), scales)
        values = unpack_fp4_from_uint8(packed["weight_packed"], n, k, dtype=torch.float32)
        inverse = state.get("weight_global_scale")
        return packed, dequantize(x_q=values, scale=scales, args=args, global_scale=inverse, dtype=torch.float32)

    return make


def _modelopt_nvfp4(weight: torch.Tensor, _: int) -> tuple[Tensors, torch.Tensor]:
    """ModelOpt's NVFP4, whose scale of the tensor multiplies."""
    n, k = weight.shape
    of_tensor = weight.abs().max() / (F8_MAX * F4_MAX)
    parts = weight.reshape(n, -1, NVFP4_GROUP)
    scales = (parts.abs().amax(-1) / F4_MAX / of_tensor).clamp(2**-9, F8_MAX).to(torch.float8_e4m3fn)
    steps = torch.tensor(F4_VALUES)
    scaled = parts / (scales.float() * of_tensor)[..., None]
    codes = (scaled.abs()[..., None] - steps).abs().argmin(-1) + 8 * (scaled < 0)
    codes = codes.reshape(n, k).to(torch.uint8)
    packed = codes[:, 0::2] | codes[:, 1::2] << 4
    values = unpack_fp4_from_uint8(packed, n, k, dtype=torch.float32).reshape(n, -1, NVFP4_GROUP)
    dense = (values * scales.float()[..., None] * of_tensor).reshape(n, k)
    tensors = {"weight": packed, "weight_scale": scales, "weight_scale_2": of_tensor, "input_scale": torch.tensor(0.02)}
    return tensors, dense


def _modelopt_fp8(weight: torch.Tensor, _: int) -> tuple[Tensors, torch.Tensor]:
    scale = weight.abs().max() / F8_MAX
    values = (weight / scale).to(torch.float8_e4m3fn)
    return {"weight": values, "weight_scale": scale, "input_scale": torch.tensor(0.02)}, values.float() * scale


def _gptq(bits: int, stores_less_one: bool, is_symmetric: bool, orders: bool):
    """GPTQ's words along k. `orders`: columns belong to groups in another order than their own (desc_act)."""

    def make(weight: torch.Tensor, seed: int) -> tuple[Tensors, torch.Tensor]:
        n, k = weight.shape
        middle, most = 2 ** (bits - 1), 2**bits - 1
        generator = torch.Generator().manual_seed(seed if orders else 0)
        group_of = torch.arange(k) // GROUP
        if orders:
            group_of = group_of[torch.randperm(k, generator=generator)]
        n_groups = k // GROUP
        scales, zeros = torch.empty(n_groups, n), torch.full((n_groups, n), middle)
        for group in range(n_groups):
            part = weight[:, group_of == group]
            low, high = part.amin(1), part.amax(1)
            if is_symmetric:
                scales[group] = part.abs().amax(1) / (middle - 1)
            else:
                scales[group] = (high - low) / most
                zeros[group] = torch.round(-low / scales[group]).clamp(1, most)
        scales = scales.half()
        of_column, zero_of_column = scales.float()[group_of], zeros[group_of]  # [k, n]
        values = (torch.round(weight.T / of_column) + zero_of_column).clamp(0, most).int()
        dense = ((values - zero_of_column).float() * of_column).T.contiguous()
        tensors = {
            "qweight": _pack_words(values, bits),
            "qzeros": _pack_words((zeros - (1 if stores_less_one else 0)).T, bits).T.contiguous(),
            "scales": scales,
            "g_idx": group_of.int(),
        }
        return tensors, dense

    return make


def _awq(weight: torch.Tensor, _: int) -> tuple[Tensors, torch.Tensor]:
    """AWQ's words along n, in its order of eight outputs."""
    n, k = weight.shape
    parts = weight.T.reshape(-1, GROUP, n)
    low, high = parts.amin(1), parts.amax(1)
    scales = ((high - low) / 15).half()
    zeros = torch.round(-low / scales.float()).clamp(0, 15).int()
    values = (torch.round(parts / scales.float()[:, None]) + zeros[:, None]).clamp(0, 15).int()
    dense = ((values - zeros[:, None]).float() * scales.float()[:, None]).reshape(k, n).T.contiguous()

    def words(rows: torch.Tensor) -> torch.Tensor:
        ordered = rows.reshape(rows.shape[0], n // 8, 8)[:, :, list(AWQ_ORDER)].reshape(rows.shape[0], n)
        return _pack_words(ordered.T, 4).T.contiguous()

    tensors = {"qweight": words(values.reshape(k, n)), "qzeros": words(zeros), "scales": scales}
    converted, scale, zero = AutoAWQConverter(group_size=GROUP)._convert_gemm_module(
        tensors["qweight"], scales, tensors["qzeros"]
    )
    by_package = (converted.float().reshape(n, -1, GROUP) - zero.float()[..., None]) * scale.float()[..., None]
    assert torch.equal(by_package.reshape(n, k), dense), "compressed-tensors reads AWQ in another way"
    return tensors, dense


def _groups(format_name: str, weights: dict) -> dict:
    """A quantization_config of compressed-tensors."""
    return {
        "quant_method": "compressed-tensors",
        "format": format_name,
        "quantization_status": "compressed",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}},
        "ignore": ["lm_head"],
    }


def _of_package(
    format_name: str, compressor: type, hidden: int, group: int = 0, activations: dict | None = None, **arguments: object
):
    weights = {"symmetric": True, "dynamic": False, **arguments}
    config = _groups(format_name, weights)
    if activations is not None:
        config["config_groups"]["group_0"]["input_activations"] = activations
    return hidden, config, _by_package(compressor, weights, group)


def _of_gptq(hidden: int, bits: int, checkpoint_format: str, stores_less_one: bool, is_symmetric: bool, orders: bool = False):
    config = {
        "quant_method": "gptq",
        "bits": bits,
        "group_size": GROUP,
        "desc_act": orders,
        "sym": is_symmetric,
        "checkpoint_format": checkpoint_format,
    }
    return hidden, config, _gptq(bits, stores_less_one, is_symmetric, orders)


def _of_f4(format_name: str, compressor: type, hidden: int, **arguments: object):
    weights = {"num_bits": 4, "type": "float", "symmetric": True, "dynamic": False, **arguments}
    return hidden, _groups(format_name, weights), _f4_by_package(compressor, weights)


def _modelopt(algorithm: str, **more: object) -> dict:
    """A quantization_config of ModelOpt."""
    return {"quant_method": "modelopt", "quant_algo": algorithm, "ignore": ["lm_head"], **more}


def _mixed_layers() -> dict:
    layers = {f"model.layers.0.self_attn.{name}_proj": {"quant_algo": "FP8"} for name in "qkvo"}
    nvfp4 = {"quant_algo": "NVFP4", "group_size": NVFP4_GROUP}
    return layers | {f"model.layers.0.mlp.{name}_proj": nvfp4 for name in ("gate", "up", "down")}


_FP8 = {"quant_method": "fp8", "fmt": "e4m3"}
_BLOCK = {"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [128, 128]}
_DYNAMIC = {"num_bits": 8, "type": "float", "strategy": "token", "dynamic": True, "symmetric": True}
_DYNAMIC_INT8 = {**_DYNAMIC, "type": "int"}
_INT4 = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": GROUP}
_AWQ = {"quant_method": "awq", "bits": 4, "group_size": GROUP, "zero_point": True, "version": "gemm"}

CASES = {
    "fp8_block": (160, {**_FP8, "activation_scheme": "dynamic", "weight_block_size": [128, 128]}, _fp8_block),
    "fp8_tensor": (64, {**_FP8, "activation_scheme": "static", "weight_block_size": None}, _fp8_tensor),
    "ct_fp8_block": _of_package("float-quantized", FloatQuantizationCompressor, 160, **_BLOCK),
    "ct_fp8_channel": _of_package("float-quantized", FloatQuantizationCompressor, 64, num_bits=8, type="float", strategy="channel"),
    "ct_fp8_dynamic": _of_package(
        "float-quantized", FloatQuantizationCompressor, 64, num_bits=8, type="float", strategy="channel", activations=_DYNAMIC
    ),
    "ct_int8": _of_package("int-quantized", IntQuantizationCompressor, 64, num_bits=8, type="int", strategy="channel"),
    # Rows of more than one of Baton's blocks.
    "ct_int8_dynamic": _of_package(
        "int-quantized", IntQuantizationCompressor, 160, num_bits=8, type="int", strategy="channel", activations=_DYNAMIC_INT8
    ),
    "ct_int4": _of_package("pack-quantized", PackedQuantizationCompressor, 64, GROUP, **_INT4),
    "ct_int4_zeros": _of_package("pack-quantized", PackedQuantizationCompressor, 64, GROUP, **{**_INT4, "symmetric": False}),
    "ct_int8_packed": _of_package(
        "pack-quantized", PackedQuantizationCompressor, 64, num_bits=8, type="int", strategy="channel"
    ),
    "ct_nvfp4": _of_f4("nvfp4-pack-quantized", NVFP4PackedCompressor, 64, strategy="tensor_group", group_size=NVFP4_GROUP),
    "ct_mxfp4": _of_f4("mxfp4-pack-quantized", MXFP4PackedCompressor, 160, strategy="group", group_size=GROUP),
    "modelopt_nvfp4": (64, _modelopt("NVFP4"), _modelopt_nvfp4),
    "modelopt_mixed": (
        64,
        _modelopt("MIXED_PRECISION", quantized_layers=_mixed_layers()),
        {".self_attn.": _modelopt_fp8, ".mlp.": _modelopt_nvfp4},
    ),
    "gptq": _of_gptq(64, 4, "gptq", stores_less_one=True, is_symmetric=True),
    # GPTQModel's second format under the name of the first.
    "gptq_misnamed": _of_gptq(64, 4, "gptq", stores_less_one=False, is_symmetric=True),
    "gptq_zeros": _of_gptq(64, 4, "gptq", stores_less_one=True, is_symmetric=False),
    "gptq_v2_zeros": _of_gptq(64, 4, "gptq_v2", stores_less_one=False, is_symmetric=False),
    "gptq_desc_act": _of_gptq(64, 4, "gptq", stores_less_one=True, is_symmetric=True, orders=True),
    "gptq_int8": _of_gptq(64, 8, "gptq", stores_less_one=True, is_symmetric=True),
    "awq": (64, _AWQ, _awq),
}


def _to_f8(x: torch.Tensor) -> torch.Tensor:
    """As _DYNAMIC states: a scale for each token."""
    scale = x.abs().amax(-1, keepdim=True) / F8_MAX
    return (x / scale).to(torch.float8_e4m3fn).double() * scale


def _to_int8(x: torch.Tensor, block: int) -> torch.Tensor:
    """A scale for each `block` columns of a token."""
    parts = x.split(block, -1)
    scales = [part.abs().amax(-1, keepdim=True) / INT8_MAX for part in parts]
    return torch.cat([(part / scale).round() * scale for part, scale in zip(parts, scales, strict=True)], -1)


@torch.no_grad()
def _with_rounded_inputs(
    model: torch.nn.Module, ids: torch.Tensor, rounded: Callable[[torch.Tensor], torch.Tensor], but: str = "none"
) -> torch.Tensor:
    """Logits in float64 with the inputs of all matrices of a layer `but` one rounded."""

    def round_input(_: torch.nn.Module, inputs: tuple[torch.Tensor]) -> tuple[torch.Tensor]:
        return (rounded(inputs[0]),)

    exact = copy.deepcopy(model).double()
    for name, module in exact.named_modules():
        if name.endswith("_proj") and not name.endswith(but):
            module.register_forward_pre_hook(round_input)
    return exact(ids, use_cache=False).logits[0].float().contiguous()


@torch.no_grad()
def _write(folder: Path, hidden: int, quantization: dict, make) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    config = _config(hidden, quantization)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    plain = {key: value for key, value in config.items() if key != "quantization_config"}
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**plain), dtype=torch.float32, attn_implementation="eager").eval()
    generator = torch.Generator().manual_seed(7)
    stored: Tensors = {}
    dense: Tensors = {}
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        weight = 1 + 0.2 * noise if parameter.dim() == 1 else noise * parameter.shape[-1] ** -0.5
        weight = weight.bfloat16().float()
        if "_proj." not in name:
            stored[name], dense[name] = weight.bfloat16(), weight
            continue
        one = make if callable(make) else next(one for part, one in make.items() if part in name)
        # Modules of one input have one order of its columns.
        tensors, dense[name] = one(weight, sum(map(ord, name.split(".")[-3])) + ("down" in name) + 2 * ("o_proj" in name))
        stem = name.removesuffix("weight")
        stored |= {stem + end: tensor.contiguous() for end, tensor in tensors.items()}
    model.load_state_dict(dense)
    groups = quantization.get("config_groups", {})
    activations = next((group["input_activations"]["type"] for group in groups.values() if "input_activations" in group), None)
    ids = torch.randint(3, N_VOCAB, (1, N_LONG_PROMPT if activations else N_PROMPT), generator=generator)
    golden = {"input_ids": ids[0].int(), "logits": model(ids, use_cache=False).logits[0].float().contiguous()}
    if activations == "float":
        golden["logits_of_f8_activations"] = _with_rounded_inputs(model, ids, _to_f8)
        # What attention gives stays in 16 or 32 bits.
        golden["logits_of_f8_activations_but_of_o"] = _with_rounded_inputs(model, ids, _to_f8, "o_proj")
    if activations == "int":
        golden["logits_of_int8_tokens"] = _with_rounded_inputs(model, ids, lambda x: _to_int8(x, x.shape[-1]))
        golden["logits_of_int8_blocks"] = _with_rounded_inputs(model, ids, lambda x: _to_int8(x, INT8_BLOCK))
    save_file(stored, str(folder / "model.safetensors"), metadata={"format": "pt"})
    save_file(golden, str(folder / "golden.safetensors"))


def _gpt_oss_config() -> dict:
    return _config(64, {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]}) | {
        "architectures": ["GptOssForCausalLM"],
        "model_type": "gpt_oss",
        "num_hidden_layers": 2,
        "head_dim": 32,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "sliding_window": 9,
        "layer_types": ["sliding_attention", "full_attention"],
        "attention_bias": True,
        "swiglu_limit": 7.0,
        "rope_theta": 150000.0,
        "rope_scaling": {
            "rope_type": "yarn",
            "factor": 32.0,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "original_max_position_embeddings": 8,
            "truncate": False,
        },
    }


@torch.no_grad()
def _write_gpt_oss(folder: Path) -> None:
    """A gpt-oss as it is shipped: its experts in MXFP4, which Transformers unpacks."""
    folder.mkdir(parents=True, exist_ok=True)
    config = _gpt_oss_config()
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    plain = {key: value for key, value in config.items() if key != "quantization_config"}
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**plain), dtype=torch.float32, attn_implementation="eager").eval()
    generator = torch.Generator().manual_seed(11)
    stored: Tensors = {}
    dense: Tensors = {}
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if name.endswith(("gate_up_proj", "down_proj")):
            n_experts, k, n = parameter.shape
            blocks = torch.randint(0, 256, (n_experts, n, k // GROUP, GROUP // 2), generator=generator, dtype=torch.uint8)
            first = 122 if "gate_up" in name else 118  # some of gate and up are over their limit
            scales = torch.randint(first, first + 4, (n_experts, n, k // GROUP), generator=generator, dtype=torch.uint8)
            stored |= {name + "_blocks": blocks, name + "_scales": scales}
            dense[name] = convert_moe_packed_tensors(blocks, scales, dtype=torch.float32)
            continue
        is_norm = "norm" in name
        deviation = 0.2 if is_norm else 1.5 if name.endswith("sinks") else 0.3 if "bias" in name else parameter.shape[-1] ** -0.5
        weight = (is_norm + deviation * noise).bfloat16()
        stored[name], dense[name] = weight, weight.float()
    model.load_state_dict(dense)
    ids = torch.randint(3, N_VOCAB, (1, N_PROMPT), generator=generator)
    golden = {"input_ids": ids[0].int(), "logits": model(ids, use_cache=False).logits[0].float().contiguous()}
    save_file(stored, str(folder / "model.safetensors"), metadata={"format": "pt"})
    save_file(golden, str(folder / "golden.safetensors"))


def write_quantised(goldens: Path) -> None:
    """Writes a folder for each of CASES, and one of a gpt-oss."""
    _write_gpt_oss(goldens / "quantised/gpt_oss_mxfp4")
    print("quantised/gpt_oss_mxfp4")
    for name, (hidden, quantization, make) in CASES.items():
        _write(goldens / "quantised" / name, hidden, quantization, make)
        print(f"quantised/{name}")
