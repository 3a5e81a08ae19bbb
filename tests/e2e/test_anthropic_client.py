"""The official Anthropic client, unmodified, against Baton's /v1/messages."""

from __future__ import annotations

import anthropic
import pytest

GREEDY = {"temperature": 0}
SHOP = GREEDY | {"prefix": "shop"}


@pytest.fixture(scope="module")
def claude(server) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0)


def ask(claude: anthropic.Anthropic, question: dict, **options: object) -> anthropic.types.Message:
    """One greedy answer to a question, whose prefix is named."""
    settings: dict = {
        "model": "demo",
        "max_tokens": 96,
        "messages": question["messages"],
        "extra_body": SHOP,
    }
    return claude.messages.create(**(settings | options))


def test_message_answers_from_the_named_prefix(claude, questions):
    message = ask(claude, questions[0])
    assert message.type == "message"
    assert message.role == "assistant"
    assert message.id.startswith("msg_")
    assert [block.type for block in message.content] == ["text"]
    assert message.content[0].text == questions[0]["answer"]
    assert message.stop_reason == "end_turn"
    assert message.usage.cache_read_input_tokens > 1500
    assert message.usage.cache_creation_input_tokens == 0
    assert message._request_id.startswith("req_")


def test_streamed_message_equals_the_whole_one(claude, questions):
    with claude.messages.stream(model="demo", max_tokens=96, messages=questions[1]["messages"], extra_body=SHOP) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == questions[1]["answer"]
    assert final.content[0].text == text
    assert final.stop_reason == "end_turn"
    assert final.usage.output_tokens == ask(claude, questions[1]).usage.output_tokens


def test_marked_system_prompt_is_created_and_then_read(claude, questions, catalogue):
    system = [{"type": "text", "text": "Be kind. " + catalogue, "cache_control": {"type": "ephemeral"}}]
    first = ask(claude, questions[2], system=system, extra_body=GREEDY).usage
    again = ask(claude, questions[3], system=system, extra_body=GREEDY).usage
    assert first.cache_creation_input_tokens > 1500
    assert again.cache_creation_input_tokens == 0
    assert again.cache_read_input_tokens >= first.cache_creation_input_tokens


def test_stop_sequence_and_max_tokens(claude, questions):
    short = ask(claude, questions[4], max_tokens=2)
    assert short.stop_reason == "max_tokens"
    assert short.usage.output_tokens == 2
    stop = questions[4]["answer"][5:9]
    stopped = ask(claude, questions[4], stop_sequences=[stop])
    assert stopped.stop_reason == "stop_sequence"
    assert stopped.stop_sequence == stop
    assert questions[4]["answer"].startswith(stopped.content[0].text)


def test_count_tokens(claude, questions):
    counted = claude.messages.count_tokens(model="demo", messages=questions[0]["messages"])
    usage = ask(claude, questions[0], extra_body=GREEDY).usage
    assert counted.input_tokens == usage.input_tokens + usage.cache_read_input_tokens + usage.cache_creation_input_tokens


def test_errors_have_the_client_s_types(claude, questions):
    with pytest.raises(anthropic.NotFoundError) as unknown:
        ask(claude, questions[0], model="nobody")
    assert unknown.value.body["error"]["type"] == "not_found_error"
    with pytest.raises(anthropic.BadRequestError) as image:
        content = [{"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}}]
        ask(claude, {"messages": [{"role": "user", "content": content}]})
    assert "messages[0].content[0].type" in str(image.value)
