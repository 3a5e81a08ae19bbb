"""AsyncLLM: streams, many at once, and cancellation."""

from __future__ import annotations

import asyncio

import pytest
from baton import LLM, AsyncLLM, BatonError, SamplingParams

GREEDY = SamplingParams(temperature=0, max_tokens=12)


def test_streams_join_to_the_answer(llm: LLM) -> None:
    """Deltas and whole outputs say what LLM says, for many streams at once."""
    prompts = [f"Item number {i} costs" for i in range(10)]
    expected = [output.outputs[0] for output in llm.generate(prompts, GREEDY)]

    async def stream(model: AsyncLLM, prompt: str) -> tuple[str, list[int], int]:
        text, ids, n_pieces = "", [], 0
        async for output in model.generate(prompt, GREEDY, delta=True):
            text += output.outputs[0].text
            ids += output.outputs[0].token_ids
            n_pieces += 1
        return text, ids, n_pieces

    async def run() -> None:
        async with AsyncLLM("demo") as model:
            streamed = await asyncio.gather(*(stream(model, prompt) for prompt in prompts))
            assert [(text, ids) for text, ids, _ in streamed] == [(answer.text, answer.token_ids) for answer in expected]
            assert max(n_pieces for _, _, n_pieces in streamed) > 1
            last = None
            async for output in model.generate(prompts[0], GREEDY):
                assert last is None or output.outputs[0].text.startswith(last)
                last = output.outputs[0].text
            assert last == expected[0].text
            chat = [output async for output in model.chat([{"role": "user", "content": "Hello"}], GREEDY)]
            assert chat[-1].finished

    asyncio.run(run())


def test_leaving_a_stream_cancels_it() -> None:
    """A broken loop and a cancelled task free their slots at once."""

    async def run() -> None:
        async with AsyncLLM("demo", max_num_seqs=1) as model:
            long = SamplingParams(temperature=0, max_tokens=3000, ignore_eos=True)
            stream = model.generate("Hello", long)
            async for _ in stream:
                break
            await stream.aclose()
            task = asyncio.create_task(anext(model.generate("Bye", long)))
            await asyncio.sleep(0.05)
            task.cancel()
            # There is one slot: this answer needs the two before it to be gone.
            outputs = [output async for output in model.generate("Hello", GREEDY)]
            assert outputs[-1].finished

    asyncio.run(asyncio.wait_for(run(), timeout=60))


def test_closing_ends_open_streams() -> None:
    """A stream that is open when the model is closed raises."""

    async def run() -> None:
        model = AsyncLLM("demo")
        stream = model.generate("Hello", SamplingParams(temperature=0, max_tokens=3000, ignore_eos=True))
        await anext(stream)
        await model.close()
        with pytest.raises(BatonError, match="closed"):
            while True:
                await anext(stream)
        with pytest.raises(BatonError, match="closed"):
            await anext(model.generate("Hello"))

    asyncio.run(asyncio.wait_for(run(), timeout=60))
