"""Structured outputs: answers keep to a schema, an expression, choices or a grammar, and mistakes are named."""

from __future__ import annotations

import asyncio
import json
import re

import pytest
from baton import LLM, AsyncLLM, InvalidRequestError, SamplingParams, StructuredOutputsParams

SCHEMA = {
    "type": "object",
    "properties": {"name": {"enum": ["lamp", "chair"]}, "price": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["name", "price"],
    "additionalProperties": False,
}
PROMPT = "The lamp costs"


def answer(llm: LLM, **grammar: object) -> str:
    """The answer that keeps to a grammar."""
    params = SamplingParams(temperature=1, seed=3, max_tokens=200, structured_outputs=StructuredOutputsParams(**grammar))
    (output,) = llm.generate(PROMPT, params)
    assert output.outputs[0].finish_reason == "stop"
    return output.outputs[0].text


def test_answers_keep_to_each_kind_of_grammar(llm: LLM) -> None:
    """Sampled at random, so that a free answer would not."""
    for schema in (SCHEMA, json.dumps(SCHEMA)):
        made = json.loads(answer(llm, json=schema))
        assert set(made) == {"name", "price"}
        assert made["name"] in {"lamp", "chair"}
        assert 0 <= made["price"] <= 99
    assert re.fullmatch(r"[0-9]{3}-[a-f]{2}", answer(llm, regex="[0-9]{3}-[a-f]{2}"))
    assert answer(llm, choice=["a red one", "a blue one"]) in {"a red one", "a blue one"}
    assert answer(llm, grammar='root ::= ("ab" | "cd") "e"') in {"abe", "cde"}
    assert " " not in answer(llm, json=SCHEMA, disable_any_whitespace=True)


def test_answers_in_one_batch_keep_to_their_own_grammars(llm: LLM) -> None:
    """Free ones beside them stay as they are."""
    free = SamplingParams(temperature=0, max_tokens=12)
    digits = SamplingParams(n=3, temperature=1, seed=1, structured_outputs=StructuredOutputsParams(regex="[0-9]{4}"))
    alone = llm.generate(PROMPT, free)[0].outputs[0].text
    one, two = llm.generate([PROMPT, PROMPT], [free, digits])
    assert one.outputs[0].text == alone
    assert len(two.outputs) == 3
    assert all(re.fullmatch("[0-9]{4}", each.text) for each in two.outputs)


def test_streams_keep_to_a_grammar() -> None:
    """AsyncLLM takes the same parameters."""

    async def run() -> str:
        async with AsyncLLM("demo") as model:
            params = SamplingParams(structured_outputs=StructuredOutputsParams(choice=["yes", "no"]))
            return [output async for output in model.generate(PROMPT, params)][-1].outputs[0].text

    assert asyncio.run(asyncio.wait_for(run(), timeout=60)) in {"yes", "no"}


def test_mistakes_name_their_field(llm: LLM) -> None:
    """Those of the parameters at once, those of a grammar when it is compiled."""
    for given in ({}, {"json": {}, "regex": "a"}):
        with pytest.raises(ValueError, match="takes one of json, regex") as refused:
            StructuredOutputsParams(**given)
        assert refused.value.param == "structured_outputs"
    cases = {
        "json": {"json": {"type": "nonsense"}},
        "regex": {"regex": "("},
        "choice": {"choice": []},
        "grammar": {"grammar": "root ::= missing"},
        "whitespace_pattern": {"json": {}, "whitespace_pattern": "[ ]*"},
        "disable_additional_properties": {"json": {}, "disable_additional_properties": True},
    }
    for field, given in cases.items():
        with pytest.raises(InvalidRequestError, match=field) as refused:
            llm.generate(PROMPT, SamplingParams(structured_outputs=StructuredOutputsParams(**given)))
        assert refused.value.param == f"structured_outputs.{field}"
    with pytest.raises(InvalidRequestError, match="must be StructuredOutputsParams, not dict"):
        SamplingParams(structured_outputs={"regex": "a"})
    with pytest.raises(TypeError, match="guided_decoding"):  # vLLM took it out in 0.12
        SamplingParams(guided_decoding=StructuredOutputsParams(regex="a"))
