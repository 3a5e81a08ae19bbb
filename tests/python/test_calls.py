"""The calls of a script for vLLM: prompts as ids, parameters that change nothing, times of a request, methods that are absent."""

from __future__ import annotations

import asyncio
import time

import pytest
from baton import LLM, AsyncLLM, InvalidRequestError, SamplingParams, UnsupportedError, _neutral

GREEDY = SamplingParams(temperature=0, max_tokens=12)


def test_ids_are_prompts(llm: LLM) -> None:
    """A list, a list of lists, a dict, and all of them mixed with texts."""
    ids = llm.encode("Hello there")
    expected = llm.generate("Hello there", GREEDY)[0].outputs[0].token_ids
    for prompts in (ids, [ids], tuple(ids), {"prompt_token_ids": ids}, [{"prompt_token_ids": tuple(ids)}]):
        (output,) = llm.generate(prompts, GREEDY)
        assert output.prompt_token_ids == ids
        assert output.prompt is None
        assert output.outputs[0].token_ids == expected
    mixed = llm.generate([ids, "Hello there", {"prompt_token_ids": ids, "multi_modal_data": None}], GREEDY)
    assert [output.outputs[0].token_ids for output in mixed] == [expected] * 3
    for prompts in ([[]], [[1, "a"]], [[1.5]], [-1], [[10**9]]):
        with pytest.raises((InvalidRequestError, TypeError)):
            llm.generate(prompts, GREEDY)


def test_streams_take_ids() -> None:
    """AsyncLLM takes the same prompts, and a priority where there are priorities."""

    async def run() -> None:
        async with AsyncLLM("demo", scheduling_policy="priority") as model:
            tokenizer = await model.get_tokenizer()
            ids = tokenizer.encode("Hello there")
            last = [output async for output in model.generate(ids, GREEDY, "mine", priority=3, lora_request=None)][-1]
            assert last.request_id == "mine"
            assert last.prompt_token_ids == ids
            with pytest.raises(UnsupportedError, match="lora_request="):
                await anext(model.generate(ids, GREEDY, lora_request=object()))

    asyncio.run(asyncio.wait_for(run(), timeout=60))


def test_priorities_need_the_policy(llm: LLM) -> None:
    """They are not accepted and ignored."""
    with LLM("demo", scheduling_policy="priority", kv_cache_memory_bytes=4 << 20, max_model_len=256) as ordered:
        outputs = ordered.generate(["Hello", "Bye"], GREEDY, priority=[1, 0])
        assert [output.prompt for output in outputs] == ["Hello", "Bye"]
    with pytest.raises(InvalidRequestError, match="priority"):
        llm.generate(["Hello"], GREEDY, priority=[1])
    with pytest.raises(InvalidRequestError, match="2 priorities for 1 prompts"):
        llm.generate(["Hello"], GREEDY, priority=[0, 0])


def test_parameters_that_change_nothing_are_taken(llm: LLM) -> None:
    """vLLM's signatures, in the order of their parameters; other values are refused by name."""
    (plain,) = llm.generate(["Hello"], GREEDY, use_tqdm=False, lora_request=None, tokenization_kwargs={})
    assert plain.outputs[0].text
    message = [{"role": "user", "content": "Hello"}]
    (first,) = llm.chat(message, GREEDY)
    (again,) = llm.chat(message, GREEDY, False, None, None, "openai", True, False, None, None, None, {})
    assert again.outputs[0].text == first.outputs[0].text
    for name, value in (("lora_request", object()), ("tokenization_kwargs", {"truncation": True})):
        with pytest.raises(UnsupportedError, match=f"{name}=") as refused:
            llm.generate("Hello", GREEDY, **{name: value})
        assert refused.value.param == name
    for name, value in (("mm_processor_kwargs", {"a": 1}), ("chat_template_content_format", "xml"), ("lora_request", 1)):
        with pytest.raises(UnsupportedError, match=f"{name}="):
            llm.chat(message, GREEDY, **{name: value})
    for name, value in (("multi_modal_data", {"image": 1}), ("prompt_embeds", 1), ("token_type_ids", [0])):
        with pytest.raises(UnsupportedError, match=f"{name}="):
            llm.generate({"prompt": "Hello", name: value}, GREEDY)
    with pytest.raises(InvalidRequestError, match="'nonsense'"):
        llm.generate({"prompt": "Hello", "nonsense": 1}, GREEDY)


def test_progress_is_shown_by_what_is_given(llm: LLM) -> None:
    """use_tqdm may make the bar."""
    steps: list[int] = []

    class Bar:
        def __init__(self, total: int, desc: str) -> None:
            assert (total, bool(desc)) == (3, True)

        def update(self, n: int) -> None:
            steps.append(n)

        def close(self) -> None:
            steps.append(0)

    llm.generate(["a", "b", "c"], GREEDY, use_tqdm=Bar)
    assert steps == [1, 1, 1, 0]


def test_outputs_have_times(llm: LLM) -> None:
    """In order, on both clocks, for one answer and for several."""
    for params in (GREEDY, SamplingParams(n=3, max_tokens=5)):
        before = time.time()
        (output,) = llm.generate("Hello there", params)
        after = time.time()
        metrics = output.metrics
        assert before <= metrics.arrival_time <= metrics.first_scheduled_time <= metrics.first_token_time
        assert metrics.first_token_time <= metrics.last_token_time <= metrics.finished_time <= after + 0.001
        assert metrics.queued_ts <= metrics.scheduled_ts <= metrics.first_token_ts <= metrics.last_token_ts
        assert metrics.time_in_queue >= 0
        assert metrics.first_token_latency == pytest.approx(metrics.first_token_ts - metrics.queued_ts)
        assert metrics.num_generation_tokens == sum(len(answer.token_ids) for answer in output.outputs)
    assert output.request_id
    assert (output.lora_request, output.encoder_prompt, output.kv_transfer_params) == (None, None, None)
    assert (output.outputs[0].lora_request, output.outputs[0].routed_experts) == (None, None)


@pytest.mark.parametrize("name", [*_neutral.METHODS, "encode"])
def test_absent_methods_say_why(llm: LLM, name: str) -> None:
    """When they are called, with any arguments."""
    with pytest.raises(UnsupportedError, match=rf"{name}\(\) .*") as refused:
        getattr(llm, name)(["Hello"], pooling_params=None)
    assert refused.value.param == name
    assert not hasattr(llm, "no_method_of_anybody")
