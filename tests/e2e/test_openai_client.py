"""The official OpenAI client, unmodified, against Baton."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import openai
import pytest

SHOP = {"prefix": "shop"}


def ask(client: openai.OpenAI, question: dict, **options: object) -> object:
    """One greedy chat completion of a question, whose prefix is named."""
    settings: dict = {"model": "demo", "messages": question["messages"], "temperature": 0, "max_tokens": 96, "extra_body": SHOP}
    return client.chat.completions.create(**(settings | options))


def test_chat_answers_from_the_named_prefix(client, questions):
    answer = ask(client, questions[0])
    assert answer.object == "chat.completion"
    assert answer.id.startswith("chatcmpl-")
    assert answer.model == "demo"
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].message.content == questions[0]["answer"]
    assert answer.choices[0].finish_reason == "stop"
    usage = answer.usage
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert usage.prompt_tokens_details.cached_tokens > 1500


def test_chat_with_the_system_message_sent_shares_the_same_blocks(client, questions, catalogue):
    question = questions[1]
    messages = [{"role": "system", "content": catalogue}, *question["messages"]]
    sent = client.chat.completions.create(model="demo", messages=messages, temperature=0, max_tokens=96)
    assert sent.choices[0].message.content == question["answer"]
    assert sent.usage.prompt_tokens_details.cached_tokens > 1500
    assert sent.usage.prompt_tokens == ask(client, question).usage.prompt_tokens


def test_prefix_as_a_model_name(client, questions):
    answer = ask(client, questions[2], model="demo:shop", extra_body={})
    assert answer.choices[0].message.content == questions[2]["answer"]


def test_streamed_chat_equals_the_whole_answer(client, questions):
    chunks = list(ask(client, questions[3], stream=True, stream_options={"include_usage": True}))
    assert chunks[0].choices[0].delta.role == "assistant"
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == questions[3]["answer"]
    finished = [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices]
    assert finished[-1] == "stop"
    assert set(finished[:-1]) == {None}
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens > 0
    assert len({chunk.id for chunk in chunks}) == 1


def test_many_streams_at_once(server, questions):
    def run(question: dict) -> bool:
        with server.client() as own:
            stream = ask(own, question, stream=True)
            return "".join(chunk.choices[0].delta.content or "" for chunk in stream) == question["answer"]

    with ThreadPoolExecutor(32) as pool:
        right = sum(pool.map(run, questions[:64]))
    assert right >= 61


def test_completions(client, catalogue):
    answer = client.completions.create(model="demo", prompt="Galtan", max_tokens=5, temperature=0)
    assert answer.object == "text_completion"
    assert answer.id.startswith("cmpl-")
    assert answer.usage.completion_tokens == 5
    assert answer.choices[0].finish_reason == "length"
    streamed = client.completions.create(model="demo", prompt="Galtan", max_tokens=5, temperature=0, stream=True)
    assert "".join(chunk.choices[0].text for chunk in streamed) == answer.choices[0].text


def test_completions_of_several_prompts_and_token_ids(client):
    both = client.completions.create(model="demo", prompt=["Galtan", "Pelbar"], max_tokens=4, temperature=0)
    assert [choice.index for choice in both.choices] == [0, 1]
    ids = client.completions.create(model="demo", prompt=[[40, 41, 42], [50, 51]], max_tokens=3, temperature=0)
    assert len(ids.choices) == 2
    assert ids.usage.prompt_tokens == 5


def test_default_max_tokens_of_completions_is_16(client):
    answer = client.completions.create(model="demo", prompt="Galtan", temperature=0, extra_body={"ignore_eos": True})
    assert answer.usage.completion_tokens == 16


def test_echo(client):
    answer = client.completions.create(model="demo", prompt="Galtan", max_tokens=2, temperature=0, echo=True)
    assert answer.choices[0].text.startswith("Galtan")


def test_stop_string(client, questions):
    question = next(question for question in questions if question["type"] == "price")
    whole = question["answer"]
    cut = ask(client, question, stop=["$"])
    assert cut.choices[0].message.content == whole[: whole.index("$")]
    assert cut.choices[0].finish_reason == "stop"
    assert cut.choices[0].stop_reason == "$"
    streamed = "".join(chunk.choices[0].delta.content or "" for chunk in ask(client, question, stop="$", stream=True))
    assert streamed == cut.choices[0].message.content
    kept = ask(client, question, stop="$", extra_body=SHOP | {"include_stop_str_in_output": True})
    assert kept.choices[0].message.content == whole[: whole.index("$") + 1]


def test_chat_logprobs(client, questions):
    answer = ask(client, questions[0], logprobs=True, top_logprobs=3)
    content = answer.choices[0].logprobs.content
    assert answer.choices[0].finish_reason == "stop"
    assert len(content) == answer.usage.completion_tokens
    assert "".join(token.token for token in content[:-1]) == answer.choices[0].message.content, "the last one is the end token"
    for token in content:
        assert token.logprob <= 0
        assert len(token.top_logprobs) == 3
        assert token.top_logprobs[0].logprob == pytest.approx(token.logprob, abs=1e-6), "greedy takes the most likely"
        assert bytes(token.bytes).decode(errors="replace") == token.token


def test_completion_logprobs(client):
    answer = client.completions.create(model="demo", prompt="Galtan", max_tokens=4, temperature=0, logprobs=2)
    logprobs = answer.choices[0].logprobs
    assert len(logprobs.tokens) == len(logprobs.token_logprobs) == len(logprobs.text_offset) == 4
    assert "".join(logprobs.tokens) == answer.choices[0].text


def test_seed(client):
    def draw(seed: int) -> str:
        made = client.completions.create(
            model="demo", prompt="- ", max_tokens=24, temperature=1.5, seed=seed, extra_body={"ignore_eos": True}
        )
        return made.choices[0].text

    assert draw(7) == draw(7)
    assert len({draw(seed) for seed in range(6)}) > 1


def test_n(client):
    answer = client.completions.create(
        model="demo", prompt="- ", max_tokens=12, temperature=1.2, n=3, seed=1, extra_body={"ignore_eos": True}
    )
    assert sorted(choice.index for choice in answer.choices) == [0, 1, 2]
    assert answer.usage.completion_tokens == 36


def test_models(client):
    models = {model.id: model for model in client.models.list()}
    assert models["demo"].max_model_len == 4096
    assert models["demo:shop"].parent == "demo"
    assert client.models.retrieve("demo").id == "demo"


def test_baton_stats(client, questions):
    answer = ask(client, questions[0], extra_body=SHOP | {"baton_stats": True})
    stats = answer.baton
    assert stats["cached_tokens"] > 1500
    assert set(stats) >= {"relayed_tokens", "kv_bytes_requested", "kv_bytes_saved", "largest_group", "queue_ms", "prefill_ms"}
    assert not hasattr(ask(client, questions[0]), "baton"), "never unasked"


def test_content_parts_and_max_completion_tokens(client, questions):
    parts = [{"role": "user", "content": [{"type": "text", "text": questions[0]["messages"][0]["content"]}]}]
    answer = ask(client, {"messages": parts}, max_tokens=openai.omit, max_completion_tokens=3)
    assert answer.usage.completion_tokens == 3
    assert answer.choices[0].finish_reason == "length"
