"""The fields of requests that OpenAI's API description has: each is taken, has no effect, or is refused by its name."""

from __future__ import annotations

import pytest
from conftest import Server
from test_conformance import CHAT, INPUT, PROMPT, description, needs_data, send, serving

__all__ = ["serving"]

# What a field does that OpenAI's description has and that the requests above have not: "refused" is 400 with its name.
FIELDS = {
    "/v1/chat/completions": {
        "taken": {
            "frequency_penalty": 0.5,
            "logit_bias": {"40": -1},
            "max_completion_tokens": 4,
            "presence_penalty": 0.5,
            "response_format": {"type": "text"},
            "reasoning_effort": "low",
            "stop": ["x"],
            "top_p": 0.9,
        },
        "without effect": {
            "audio": {"voice": "alloy", "format": "wav"},
            "metadata": {"a": "b"},
            "prediction": {"type": "content", "content": "a"},
            "prompt_cache_key": "agents",
            "prompt_cache_options": {"ttl": "1h"},
            "prompt_cache_retention": "24h",
            "safety_identifier": "a",
            "service_tier": "auto",
            "store": True,
            "user": "a",
            "verbosity": "low",
            "web_search_options": {},
        },
        "refused": {
            "function_call": {"name": "a"},
            "functions": [{"name": "a"}],
            "modalities": ["text", "audio"],
            "moderation": {"model": "omni-moderation-latest"},
        },
    },
    "/v1/completions": {
        "taken": {"frequency_penalty": 0.5, "logit_bias": {"40": -1}, "n": 2, "presence_penalty": 0.5, "seed": 1}
        | {"stop": "x", "top_p": 0.9},
        "without effect": {"user": "a"},
        "refused": {"best_of": 2, "suffix": "a"},
    },
    "/v1/responses": {
        "taken": {
            "include": ["reasoning.encrypted_content"],
            "instructions": "Be brief.",
            "parallel_tool_calls": True,
            "reasoning": {"effort": "low"},
            "text": {"format": {"type": "text"}},
            "top_p": 0.9,
            "truncation": "auto",
        },
        "without effect": {
            "context_management": [{"type": "compaction", "compact_threshold": 1000}],
            "max_tool_calls": 3,
            "metadata": {"a": "b"},
            "prompt_cache_key": "agents",
            "prompt_cache_options": {"ttl": "1h"},
            "prompt_cache_retention": "24h",
            "safety_identifier": "a",
            "service_tier": "auto",
            "store": False,
            "stream_options": {"include_obfuscation": False},
            "user": "a",
        },
        "refused": {
            "background": True,
            "conversation": "conv_1",
            "moderation": {"model": "omni-moderation-latest"},
            "prompt": {"id": "pmpt_1"},
            "previous_response_id": "resp_1",
        },
    },
}
# Fields of the requests of WHOLE and STREAMS.
USED = {
    "/v1/chat/completions": {"messages", "model", "max_tokens", "temperature", "n", "logprobs", "top_logprobs", "stream"}
    | {"stream_options", "tools", "tool_choice", "parallel_tool_calls", "seed"},
    "/v1/completions": {"prompt", "model", "max_tokens", "temperature", "logprobs", "echo", "stream", "stream_options"},
    "/v1/responses": {"input", "model", "max_output_tokens", "temperature", "include", "top_logprobs", "stream", "tools"}
    | {"tool_choice", "parallel_tool_calls"},
}
REQUESTS = {
    "/v1/chat/completions": "CreateChatCompletionRequest",
    "/v1/completions": "CreateCompletionRequest",
    "/v1/responses": "CreateResponse",
}


@pytest.mark.parametrize(
    ("path", "what", "field"),
    [(path, what, field) for path, kinds in FIELDS.items() for what, fields in kinds.items() for field in fields],
)
def test_fields_of_requests_are_taken_or_refused_by_name(serving: Server, path: str, what: str, field: str):
    base = {"/v1/chat/completions": CHAT, "/v1/completions": PROMPT, "/v1/responses": INPUT}[path]
    answer = send(serving, path, base | {field: FIELDS[path][what][field]})
    if what != "refused":
        assert answer.status == 200, answer.text
        return
    assert answer.status == (404 if field == "previous_response_id" else 400), answer.text
    assert answer.json()["error"]["param"] == field


@needs_data
@pytest.mark.parametrize("path", REQUESTS)
def test_every_published_field_is_here(path: str):
    schemas = description()["components"]["schemas"]

    def members(schema: dict) -> set[str]:
        if "$ref" in schema:
            schema = schemas[schema["$ref"].rpartition("/")[2]]
        return set(schema.get("properties", {})).union(*map(members, schema.get("allOf", [])))

    listed = USED[path].union(*FIELDS[path].values())
    assert members(schemas[REQUESTS[path]]) == listed & members(schemas[REQUESTS[path]])
