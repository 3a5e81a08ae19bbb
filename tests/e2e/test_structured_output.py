"""Structured output by real clients, at temperature 1, with jsonschema as the judge."""

from __future__ import annotations

import enum
import json
import re
import urllib.request

import instructor
import jsonschema
import openai
import pydantic
import pytest
from conftest import Server
from langchain_openai import ChatOpenAI

MESSAGES = [{"role": "user", "content": "What does the blue mug cost?"}]


class Colour(enum.Enum):
    """Of an article."""

    RED = "red"
    BLUE = "blue"


class Article(pydantic.BaseModel):
    """Bounded, so that answers of a weak model end."""

    name: str = pydantic.Field(max_length=30)
    colour: Colour
    cents: int = pydantic.Field(ge=0, le=99999)
    tags: list[str] = pydantic.Field(max_length=2)
    sizes: list[int] | None


class Anything(pydantic.BaseModel):
    """Any object."""

    model_config = pydantic.ConfigDict(extra="allow")


SCHEMA = {
    "type": "object",
    "properties": {
        "id": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{4}$"},
        "count": {"type": "integer", "minimum": 1, "maximum": 12},
        "state": {"enum": ["new", "used", None]},
    },
    "required": ["id", "count", "state"],
    "additionalProperties": False,
}


def named(schema: dict) -> dict:
    """The response format of a schema."""
    return {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": schema}}


def ask(client: openai.OpenAI, **options: object) -> object:
    """One chat completion at temperature 1."""
    settings: dict = {"model": "demo", "messages": MESSAGES, "temperature": 1, "max_tokens": 400}
    return client.chat.completions.create(**(settings | options))


def check_texts(answer: object, schema: dict) -> None:
    """All choices ended and are valid."""
    for choice in answer.choices:
        assert choice.finish_reason == "stop", choice
        jsonschema.validate(json.loads(choice.message.content), schema)


def test_every_choice_is_valid(client):
    check_texts(ask(client, response_format=named(SCHEMA), n=8), SCHEMA)


def test_pydantic_models_are_parsed_by_the_openai_client(client):
    answer = client.chat.completions.parse(
        model="demo", messages=MESSAGES, temperature=1, max_tokens=512, seed=3, response_format=Article
    )
    assert answer.choices[0].finish_reason == "stop"
    assert isinstance(answer.choices[0].message.parsed, Article)


def test_the_openai_clients_stream_ends_with_the_parsed_model(client):
    with client.chat.completions.stream(
        model="demo", messages=MESSAGES, temperature=1, max_tokens=512, seed=3, response_format=Article
    ) as stream:
        kinds = {event.type for event in stream}
        parsed = stream.get_final_completion().choices[0].message.parsed
    assert "content.done" in kinds
    assert isinstance(parsed, Article)


def test_json_object_needs_no_word_in_the_prompt(client):
    answer = ask(client, response_format={"type": "json_object"}, n=4)
    for choice in answer.choices:
        if choice.finish_reason == "stop":  # nothing bounds the object
            assert isinstance(json.loads(choice.message.content), dict)
        else:
            assert choice.message.content.startswith("{")


@pytest.mark.parametrize(
    ("fields", "pattern"),
    [
        ({"structured_outputs": {"regex": "[0-9]{3}-[a-z]{2}"}}, "[0-9]{3}-[a-z]{2}"),
        ({"structured_outputs": {"choice": ["yes", "no", "not sure"]}}, "yes|no|not sure"),
        (
            {"structured_outputs": {"grammar": 'root ::= num ("+" num){1,3}\nnum ::= [1-9] [0-9]{0,2}'}},
            r"[1-9]\d{0,2}(\+[1-9]\d{0,2}){1,3}",
        ),
        ({"structured_outputs": {"json": {"type": "boolean"}}}, "true|false"),
        ({"guided_regex": "a{2,3}"}, "a{2,3}"),
        ({"guided_choice": ["x"]}, "x"),
        ({"guided_json": json.dumps({"enum": [1, 2]})}, "1|2"),
        ({"guided_grammar": 'start: "a" ("b" | "c")'}, "a[bc]"),
        ({"json_schema": {"const": "é"}}, '"é"'),
        ({"grammar": 'root ::= "(" [ab] ")"'}, r"\([ab]\)"),
    ],
)
def test_fields_of_other_servers(client, fields, pattern):
    for choice in ask(client, extra_body=fields, n=3).choices:
        assert choice.finish_reason == "stop", choice
        assert re.fullmatch(pattern, choice.message.content), choice


def test_a_grammar_beside_other_fields(client):
    scored = ask(client, response_format=named(SCHEMA), n=2, logprobs=True, top_logprobs=2, presence_penalty=1, frequency_penalty=1)
    check_texts(scored, SCHEMA)
    for choice in scored.choices:
        assert "".join(entry.token for entry in choice.logprobs.content).startswith(choice.message.content)
    speculating = {"speculative_config": {"method": "ngram", "num_speculative_tokens": 4}}
    check_texts(ask(client, response_format=named(SCHEMA), extra_body=speculating), SCHEMA)
    stopped = ask(client, extra_body={"guided_regex": "[ab]{6}-[ab]{6}"}, stop="-")
    assert re.fullmatch("[ab]{6}", stopped.choices[0].message.content)


def test_a_streamed_answer_is_valid(client):
    chunks = list(ask(client, response_format=named(SCHEMA), stream=True))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    jsonschema.validate(json.loads(text), SCHEMA)


def test_completions_take_a_grammar_for_each_prompt(client):
    answer = client.completions.create(
        model="demo", prompt=["a", "b"], max_tokens=400, temperature=1, extra_body={"guided_json": SCHEMA}
    )
    assert len(answer.choices) == 2
    for choice in answer.choices:
        jsonschema.validate(json.loads(choice.text), SCHEMA)


@pytest.mark.parametrize(
    ("fields", "param", "place"),
    [
        ({"response_format": named({"properties": {"a": {"not": {}}}})}, "response_format.json_schema.schema", "#/properties/a"),
        ({"response_format": {"type": "xml"}}, "response_format.type", "xml"),
        ({"extra_body": {"guided_regex": "(?<=a)b"}}, "guided_regex", "byte"),
        ({"extra_body": {"guided_json": {}, "guided_regex": "a"}}, "guided_regex", "only one"),
        (
            {"extra_body": {"structured_outputs": {"json": {}, "whitespace_pattern": "x"}}},
            "structured_outputs.whitespace_pattern",
            "",
        ),
    ],
)
def test_what_cannot_be_held_to_is_refused_with_its_place(client, fields, param, place):
    with pytest.raises(openai.BadRequestError) as refused:
        ask(client, **fields)
    assert refused.value.body["param"] == param
    assert place in refused.value.body["message"]


def test_a_schema_is_compiled_once_and_counted(client, server: Server):
    def metric(name: str) -> float:
        page = urllib.request.urlopen(f"{server.url}/metrics", timeout=30).read().decode()
        return float(re.search(rf"^baton:grammar_{name}\{{.*\}} (.*)$", page, re.MULTILINE)[1])

    schema = SCHEMA | {"title": "asked for twice"}
    misses, hits = metric("cache_misses_total"), metric("cache_hits_total")
    for _ in range(2):
        check_texts(ask(client, response_format=named(schema)), schema)
    assert metric("cache_misses_total") == misses + 1
    assert metric("cache_hits_total") == hits + 1
    assert metric("cache_bytes") < metric("cache_limit_bytes")


def test_instructor_with_the_schema(client):
    wrapped = instructor.from_openai(client, mode=instructor.Mode.JSON_SCHEMA)
    made = wrapped.chat.completions.create(
        model="demo", messages=MESSAGES, temperature=1, max_tokens=512, seed=3, max_retries=0, response_model=Article
    )
    assert isinstance(made, Article)


def test_instructor_with_any_object(client):
    wrapped = instructor.from_openai(client, mode=instructor.Mode.JSON)
    made = wrapped.chat.completions.create(
        model="demo", messages=MESSAGES, temperature=1, max_tokens=2000, seed=3, max_retries=2, response_model=Anything
    )
    assert isinstance(made, Anything)


def test_langchain(server: Server):
    model = ChatOpenAI(
        model="demo", base_url=f"{server.url}/v1", api_key="none", temperature=1, seed=3, max_tokens=512, max_retries=0
    )
    made = model.with_structured_output(Article, method="json_schema").invoke("What does the blue mug cost?")
    assert isinstance(made, Article)
