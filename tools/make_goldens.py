#!/usr/bin/env python3
"""Writes tests/goldens: what Transformers, tokenizers and Jinja2 say, for our tests to compare with.

    make_goldens.py llamas families mtp bf16 quantised made_up tokenizers auto_tokenizers sentencepiece sentencepiece_unigram
        templates demo

    (any of them; none means all but sentencepiece)

    *_tiny_*/           tiny random checkpoints; weights.txt: how their weights are drawn (goldens/drawn.py);
                        golden.safetensors: input_ids, positions and logits of its last rows, greedy_ids (float32),
                        max_positions where the longest sequence counts
                        by bf16: bf16.safetensors beside each golden.safetensors, what Transformers computes in bfloat16
    mtp_*/              tiny random checkpoints with a layer for drafts; mtp.safetensors: what it gives (goldens/mtp.py)
    quantised/*/        tiny random checkpoints in the formats of quantised ones; golden.safetensors: input_ids and logits (float32)
    made_up_*tiny/      the same as golden.safetensors for the made-up families of the tests, by NumPy in float64
    tokenizers/*/       tokenizer.json and cases.json {encode: [...], decode: [...]}
    auto_tokenizers/*/  what AutoTokenizer reads of a folder, and cases.json [{text, ids, ids_with_ends, decoded}]
    sentencepiece/*/    tokenizer.model, tokenizer_config.json and cases.json [{text, add_special_tokens, ids}]; by
                        sentencepiece_unigram: unigram/ tokenizer.model and cases.json {encode: [...], decode: [...]}
    chat_templates/     cases.json: template, context, expected text or error
    demo/               golden.safetensors and chats.json of models/demo

Needs PyTorch (a CPU will do), Transformers 5, tokenizers, SentencePiece, safetensors and Jinja2; quantised needs
compressed-tensors 0.20, sentencepiece
Transformers 4, made_up NumPy and safetensors alone.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

ROOT = Path(__file__).resolve().parent.parent
GOLDENS = ROOT / "tests/goldens"
PARTS = ("llamas", "families", "mtp", "bf16", "quantised", "made_up", "tokenizers", "auto_tokenizers", "sentencepiece_unigram")
PARTS += ("templates", "demo")


def main() -> int:
    """Writes the parts that are named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, "sentencepiece", []], default=PARTS, metavar="PART")
    parts = parser.parse_args().parts or PARTS
    if "tokenizers" in parts:
        from goldens.tokenizer_cases import write_tokenizers

        write_tokenizers(GOLDENS)
    if "auto_tokenizers" in parts:
        from goldens.auto_tokenizer_cases import write_auto_tokenizers

        write_auto_tokenizers(GOLDENS)
    if "sentencepiece" in parts:
        from goldens.sentencepiece_cases import write_sentencepiece

        write_sentencepiece(GOLDENS)
    if "sentencepiece_unigram" in parts:
        from goldens.sentencepiece_unigram import write_sentencepiece_unigram

        write_sentencepiece_unigram(GOLDENS)
    if "templates" in parts:
        from goldens.template_cases import write_templates
        from goldens.template_expressions import write_expressions, write_real_templates

        write_templates(GOLDENS)
        write_expressions(GOLDENS)
        if "BATON_TEST_DATA" in os.environ:
            write_real_templates(GOLDENS, Path(os.environ["BATON_TEST_DATA"]) / "chat-templates")
    if "llamas" in parts:
        from goldens.tiny_llamas import write_tiny_llamas

        write_tiny_llamas(GOLDENS)
    if "families" in parts:
        from goldens.tiny_families import write_tiny_families
        from goldens.tiny_recurrent import write_tiny_recurrent

        write_tiny_families(GOLDENS)
        write_tiny_recurrent(GOLDENS)
    if "mtp" in parts:
        from goldens.mtp import write_mtp

        write_mtp(GOLDENS)
    if "bf16" in parts:  # after the checkpoints
        from goldens.tiny_bf16 import write_tiny_bf16

        write_tiny_bf16(GOLDENS)
    if "quantised" in parts:
        from goldens.quantised import write_quantised

        write_quantised(GOLDENS)
    if "made_up" in parts:
        from goldens.made_up import write_made_up
        from goldens.made_up_norms import write_made_up_norms

        write_made_up(GOLDENS)
        write_made_up_norms(GOLDENS)
    if "demo" in parts:
        from goldens.demo_cases import write_demo

        write_demo(ROOT / "models/demo", GOLDENS)
    return 0


if __name__ == "__main__":
    sys.exit(main())
