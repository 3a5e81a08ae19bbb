"""What Transformers computes in bfloat16 from the tiny checkpoints, beside what it computes in float32."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from .auto_models import AutoModelForCausalLM
from .drawn import draw_into

N_ROWS = 24  # rows of logits that are kept: the last of the golden


def _model(folder: Path, dtype: torch.dtype) -> torch.nn.Module:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="eager").eval()


def _last_logits(model: torch.nn.Module, golden: dict[str, torch.Tensor], n_rows: int) -> torch.Tensor:
    if "max_positions" in golden:  # dynamic RoPE keeps the frequencies of the longest sequence so far
        model(torch.full((1, int(golden["max_positions"][0])), 5), use_cache=False)
    logits = model(golden["input_ids"].long()[None], use_cache=False).logits[0]
    return logits[-n_rows:].contiguous()


@torch.no_grad()
def write_tiny_bf16(goldens: Path) -> None:
    """Writes FOLDER/bf16*.safetensors beside each FOLDER/golden*.safetensors of the tiny checkpoints: `logits` of the
    last rows in bfloat16, weights, activations and logits. Where the checkpoint holds float32, also `float32_logits` of
    the golden's rows: float32 arithmetic with weights rounded to bfloat16."""
    for file in sorted(goldens.glob("*_tiny_*/golden*.safetensors")):
        folder = file.parent
        golden = load_file(file)
        n_golden = len(golden["positions"])
        with tempfile.TemporaryDirectory() as temporary:
            checkpoint = Path(temporary)
            draw_into(checkpoint, folder)
            model = _model(checkpoint, torch.bfloat16)
            logits = _last_logits(model, golden, min(N_ROWS, n_golden))
            tensors = {"logits": logits.bfloat16()}  # some models widen what they computed in bfloat16
            expected = golden["logits"]
            if _model(checkpoint, "auto").dtype == torch.float32:
                expected = _last_logits(_model(checkpoint, torch.bfloat16).float(), golden, n_golden)
                tensors["float32_logits"] = expected
        save_file(tensors, str(folder / file.name.replace("golden", "bf16")))
        expected = expected[-len(logits) :]
        errors = (logits.float() - expected).norm(dim=-1) / expected.norm(dim=-1)
        whole = ((logits.float() - expected).norm() / expected.norm()).item()
        print(f"{folder.name}/{file.name}: relative error of bf16 {whole:.4f}, of its worst row {errors.max().item():.4f}")
