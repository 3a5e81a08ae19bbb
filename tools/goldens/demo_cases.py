"""What Transformers computes in float32 from models/demo: chats, logits at chosen positions, greedy answers."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

N_QUESTIONS = 8
MAX_NEW_TOKENS = 96


def _messages(model_folder: Path) -> list[list[dict[str, str]]]:
    """The first questions of questions.jsonl behind the catalogue, and one chat without a system prompt."""
    system = {"role": "system", "content": (model_folder / "catalogue.txt").read_text()}
    lines = (model_folder / "questions.jsonl").read_text().splitlines()[:N_QUESTIONS]
    return [[system, *json.loads(line)["messages"]] for line in lines] + [[{"role": "user", "content": "Hello, 123!"}]]


@torch.no_grad()
def _golden(model: torch.nn.Module, ids: list[int], end: int) -> tuple[dict[str, torch.Tensor], list[int]]:
    """Logits at a few positions of the prompt and at its last, and the greedy ids after it, `end` included."""
    prompt = torch.tensor([ids])
    logits = model(prompt).logits[0]
    positions = sorted({0, 1, len(ids) // 3, len(ids) // 2, len(ids) - 2, len(ids) - 1})
    greedy = model.generate(prompt, max_new_tokens=MAX_NEW_TOKENS, do_sample=False, attention_mask=torch.ones_like(prompt))
    new = greedy[0, len(ids) :].tolist()
    if end in new:
        new = new[: new.index(end) + 1]
    tensors = {
        "input_ids": prompt[0].int(),
        "positions": torch.tensor(positions, dtype=torch.int32),
        "logits": logits[positions].float().contiguous(),
        "greedy_ids": torch.tensor(new, dtype=torch.int32),
    }
    return tensors, new


def write_demo(model_folder: Path, goldens: Path) -> None:
    """Writes demo/golden.safetensors (tensors "N.input_ids" and so on) and demo/chats.json (list, by N)."""
    tokenizer = AutoTokenizer.from_pretrained(model_folder)
    model = AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32).eval()
    tensors: dict[str, torch.Tensor] = {}
    chats = []
    for index, messages in enumerate(_messages(model_folder)):
        rendered = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        ids = tokenizer(rendered, add_special_tokens=False)["input_ids"]
        golden, new = _golden(model, ids, tokenizer.eos_token_id)
        tensors |= {f"{index}.{name}": tensor for name, tensor in golden.items()}
        answer = tokenizer.decode(new, skip_special_tokens=True)
        chats.append({"messages": messages[-1:], "with_catalogue": len(messages) > 1, "rendered": rendered, "answer": answer})
    folder = goldens / "demo"
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, str(folder / "golden.safetensors"))
    (folder / "chats.json").write_text(json.dumps(chats, indent=1) + "\n")
    print(f"demo: {len(chats)} chats, last answer to a question: {chats[-2]['answer']}")
