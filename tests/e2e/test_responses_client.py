"""The official OpenAI client's Responses, unmodified, against Baton's /v1/responses."""

from __future__ import annotations

import openai
import pytest

SHOP = {"prefix": "shop"}


def ask(client: openai.OpenAI, question: dict, **options: object) -> object:
    """One greedy response to a question, whose prefix is named."""
    settings: dict = {
        "model": "demo",
        "input": question["messages"],
        "temperature": 0,
        "max_output_tokens": 96,
        "extra_body": SHOP,
    }
    return client.responses.create(**(settings | options))


def test_response_answers_from_the_named_prefix(client, questions):
    response = ask(client, questions[0], metadata={"who": "me"})
    assert response.object == "response"
    assert response.status == "completed"
    assert response.output_text == questions[0]["answer"]
    assert response.metadata == {"who": "me"}
    assert response.usage.input_tokens_details.cached_tokens > 1500
    assert response.usage.total_tokens == response.usage.input_tokens + response.usage.output_tokens


def test_streamed_response_equals_the_whole_one(client, questions):
    events = list(ask(client, questions[1], stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert events[0].type == "response.created"
    assert events[-1].type == "response.completed"
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert text == questions[1]["answer"]
    assert events[-1].response.output_text == text


def test_stream_helper(client, questions):
    with client.responses.stream(
        model="demo", input=questions[1]["messages"], temperature=0, max_output_tokens=96, extra_body=SHOP
    ) as stream:
        for _ in stream:
            pass
        assert stream.get_final_response().output_text == questions[1]["answer"]


def test_conversation_continues_and_is_forgotten(client, questions):
    first = ask(client, questions[2])
    second = client.responses.create(
        model="demo", input="Thanks.", previous_response_id=first.id, max_output_tokens=4, extra_body=SHOP
    )
    assert second.previous_response_id == first.id
    assert second.usage.input_tokens > first.usage.input_tokens
    items = client.responses.input_items.list(second.id, order="asc")
    assert items.data[-1].content[0].text == "Thanks."
    assert client.responses.retrieve(first.id).output_text == first.output_text
    client.responses.delete(first.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(first.id)
    unkept = ask(client, questions[2], store=False)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(unkept.id)


def test_log_probabilities_of_the_text(client, questions):
    response = ask(client, questions[3], include=["message.output_text.logprobs"], top_logprobs=2, max_output_tokens=4)
    scores = response.output[0].content[0].logprobs
    assert len(scores) == 4
    assert all(len(score.top_logprobs) == 2 and score.logprob <= 0 for score in scores)


def test_what_is_not_supported_is_named(client, questions):
    with pytest.raises(openai.BadRequestError) as refused:
        ask(client, questions[0], tools=[{"type": "web_search"}], tool_choice={"type": "web_search"})
    assert refused.value.body["param"] == "tool_choice.type"
    with pytest.raises(openai.BadRequestError) as background:
        ask(client, questions[0], background=True)
    assert background.value.body["param"] == "background"
    with pytest.raises(openai.APIStatusError) as embeddings:
        client.embeddings.create(model="demo", input="a")
    assert embeddings.value.status_code == 501
