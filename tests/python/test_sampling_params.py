"""SamplingParams has all of vLLM's fields: they act, or take what changes nothing."""

from __future__ import annotations

import asyncio

import pytest
from baton import LLM, AsyncLLM, InvalidRequestError, RequestOutputKind, SamplingParams, UnsupportedError, _neutral

PARAMS = SamplingParams(temperature=0, max_tokens=12)


def test_neutral_values_are_taken(llm: LLM) -> None:
    """All at once, and each of them."""
    given = {name: accepted[-1] for name, (accepted, _) in _neutral.SAMPLING.items()}
    (answer,) = llm.generate("Hello", SamplingParams(temperature=0, max_tokens=12, **given))
    (plain,) = llm.generate("Hello", PARAMS)
    assert answer.outputs[0].token_ids == plain.outputs[0].token_ids
    for name, (accepted, _) in _neutral.SAMPLING.items():
        for value in accepted:
            SamplingParams(**{name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("prompt_logprob_token_ids", [1]),
        ("prompt_logprob_start", 3),
        ("logprob_token_ids", [1, 2]),
        ("flat_logprobs", True),
        ("stream_interval", 8),
        ("extra_args", {"a": 1}),
        ("skip_reading_prefix_cache", True),
        ("thinking_token_budget", 100),
        ("repetition_detection", object()),
        ("routed_experts_prompt_start", 2),
        ("trace_decode_token_ids", [1]),
    ],
)
def test_other_values_are_refused_by_name(llm: LLM, name: str, value: object) -> None:
    """With a reason, also if they are set later."""
    with pytest.raises(UnsupportedError, match=f"{name}=.* is not supported: ") as refused:
        SamplingParams(**{name: value})
    assert refused.value.param == name
    params = SamplingParams()
    setattr(params, name, value)
    with pytest.raises(ValueError, match=name):
        llm.generate("Hello", params)


def test_wrong_values_are_named() -> None:
    """What the engine would not see."""
    for name, value in (("n", 0), ("logprobs", -1), ("prompt_logprobs", -2), ("output_kind", 1)):
        with pytest.raises(InvalidRequestError, match=f"{name} must be") as refused:
            SamplingParams(**{name: value})
        assert refused.value.param == name
    for name in ("best_off", "guided_decoding"):
        with pytest.raises(TypeError, match=name):
            SamplingParams(**{name: 1})


def test_fields_have_one_form() -> None:
    """So that equal parameters are equal."""
    assert SamplingParams(stop="x") == SamplingParams(stop=["x"])
    assert SamplingParams(stop_token_ids=[3, 1, 3]).stop_token_ids == [3, 1]
    assert SamplingParams(bad_words=None).bad_words == SamplingParams(stop=None).stop == []
    assert SamplingParams(seed=-1) == SamplingParams()
    assert SamplingParams(logprobs=True).logprobs == 1
    assert SamplingParams(temperature=0.5) != SamplingParams(temperature=0.6)
    assert "temperature=0.5" in repr(SamplingParams(temperature=0.5))
    assert repr(SamplingParams()).startswith("SamplingParams(n=1, presence_penalty=0.0, ")


def test_clones_share_nothing() -> None:
    """Unless skip_clone says that they may."""
    first = SamplingParams(stop=["a"], logit_bias={1: 2.0})
    copied = first.clone()
    assert copied == first
    copied.stop.append("b")
    copied.logit_bias[2] = 1.0
    assert (first.stop, first.logit_bias) == (["a"], {1: 2.0})
    shared = SamplingParams(skip_clone=True)
    assert shared.clone() is shared


def test_from_optional_takes_none_for_defaults() -> None:
    """As servers call it."""
    assert SamplingParams.from_optional(n=None, temperature=None, top_p=None, top_k=None, stop=None) == SamplingParams()
    assert SamplingParams.from_optional(max_tokens=None).max_tokens is None
    assert SamplingParams.from_optional(logit_bias={"7": 500, 8: -1.5}).logit_bias == {7: 100.0, 8: -1.5}
    with pytest.raises(InvalidRequestError, match="logit_bias"):
        SamplingParams.from_optional(logit_bias={"x": 1})
    with pytest.raises(TypeError, match="nonsense"):
        SamplingParams.from_optional(nonsense=1)


def test_output_kinds_are_obeyed() -> None:
    """Cumulative, new, and whole outputs say the same."""

    async def run() -> None:
        async with AsyncLLM("demo") as model:
            told = {}
            for kind in RequestOutputKind:
                params = SamplingParams(temperature=0, max_tokens=12, output_kind=kind)
                told[kind] = [output async for output in model.generate("Hello", params, f"my-{kind.name}")]
                assert all(output.request_id == f"my-{kind.name}" for output in told[kind])
            whole = told[RequestOutputKind.FINAL_ONLY]
            assert len(whole) == 1
            text = whole[0].outputs[0].text
            assert told[RequestOutputKind.CUMULATIVE][-1].outputs[0].text == text
            assert len(told[RequestOutputKind.DELTA]) > 1
            assert "".join(output.outputs[0].text for output in told[RequestOutputKind.DELTA]) == text

    asyncio.run(asyncio.wait_for(run(), timeout=60))
