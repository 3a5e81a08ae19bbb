"""The shapes of Baton's answers, errors and stream frames, in our own words: each field, and no other.

The names and rules are those of OpenAI's API, of vLLM's additions to it, and of Anthropic's messages. A shape is a JSON
schema; `obj` makes one of a closed object, whose members may be left out where their name ends with "?".
"""

from __future__ import annotations

import jsonschema

ANY: dict = {}
NULL: dict = {"type": "null"}
STRING: dict = {"type": "string"}
INTEGER: dict = {"type": "integer"}
COUNT: dict = {"type": "integer", "minimum": 0}
NUMBER: dict = {"type": "number"}
BOOLEAN: dict = {"type": "boolean"}
OBJECT: dict = {"type": "object"}


def obj(**members: dict) -> dict:
    """Return the shape of an object with these members; one whose name ends with "_opt" may be left out."""
    named = {name.removesuffix("_opt"): shape for name, shape in members.items()}
    required = [name for name in members if not name.endswith("_opt")]
    return {"type": "object", "properties": named, "required": required, "additionalProperties": False}


def maybe(shape: dict) -> dict:
    """Return the shape of a value or null."""
    return {"anyOf": [shape, NULL]}


def either(*shapes: dict) -> dict:
    """Return the shape of a value of one of these."""
    return {"anyOf": list(shapes)}


def words(*values: str) -> dict:
    """Return the shape of one of these texts."""
    return {"enum": list(values)}


def begins(start: str) -> dict:
    """Return the shape of a text that begins so."""
    return {"type": "string", "pattern": f"^{start}."}


def items(shape: dict, least: int = 0) -> dict:
    """Return the shape of a list."""
    return {"type": "array", "items": shape, "minItems": least}


def check(shape: dict, value: object, what: str) -> None:
    """Raise an AssertionError that names the place where `value` is not of a shape."""
    errors = []
    for found in jsonschema.Draft202012Validator(shape).iter_errors(value):
        error = found
        while error.context:
            error = max(error.context, key=lambda inner: len(inner.absolute_path))
        errors.append(f"{what} at {'/'.join(map(str, error.absolute_path)) or 'its top'}: {error.message[:300]}")
    assert not errors, "\n".join(errors)


# Errors of OpenAI's dialect (their `code` is vLLM's: the status as a number), and Anthropic's.
ERROR = obj(error=obj(message={"type": "string", "minLength": 5}, type=STRING, param=maybe(STRING), code=INTEGER))
UNAUTHORIZED = obj(error=words("Unauthorized"))
MESSAGES_ERROR = obj(
    type=words("error"),
    error=obj(
        type=words(
            "invalid_request_error",
            "authentication_error",
            "permission_error",
            "not_found_error",
            "request_too_large",
            "rate_limit_error",
            "api_error",
            "overloaded_error",
        ),
        message={"type": "string", "minLength": 5},
    ),
)
ERROR_TYPES = {400: "BadRequestError", 404: "NotFoundError", 405: "BadRequestError", 413: "BadRequestError"}
ERROR_TYPES |= {415: "BadRequestError", 501: "NotImplementedError"}
MESSAGES_ERROR_TYPES = {400: "invalid_request_error", 401: "authentication_error", 404: "not_found_error"}
MESSAGES_ERROR_TYPES |= {405: "invalid_request_error", 413: "request_too_large", 415: "invalid_request_error"}

# Chat completions and plain ones.
USAGE = obj(
    prompt_tokens=COUNT,
    completion_tokens=COUNT,
    total_tokens=COUNT,
    prompt_tokens_details=obj(cached_tokens=COUNT),
    completion_tokens_details_opt=obj(reasoning_tokens=COUNT),
)
LOGPROB: dict = {"type": "number", "minimum": -9999, "maximum": 0}
TOP_TOKEN = obj(token=STRING, logprob=LOGPROB, bytes=items(INTEGER))
TOKEN = obj(token=STRING, logprob=LOGPROB, bytes=items(INTEGER), top_logprobs=items(TOP_TOKEN))
CHAT_LOGPROBS = obj(content=items(TOKEN), refusal=NULL)
CALL = obj(id=STRING, type=words("function"), function=obj(name=STRING, arguments=STRING))
FINISH = words("stop", "length", "tool_calls", "abort")
STOP_REASON = maybe(either(STRING, INTEGER))
MESSAGE = obj(
    role=words("assistant"),
    content=maybe(STRING),
    refusal=NULL,
    tool_calls_opt=items(CALL, least=1),
    reasoning_content_opt=STRING,
    reasoning_opt=STRING,
)
CHAT_CHOICE = obj(
    index=COUNT,
    message=MESSAGE,
    logprobs=maybe(CHAT_LOGPROBS),
    finish_reason=FINISH,
    stop_reason=STOP_REASON,
    token_ids_opt=items(COUNT),
)
HEAD = {"created": COUNT, "model": STRING, "system_fingerprint": begins("baton-")}
CHAT = obj(
    id=begins("chatcmpl-"),
    object=words("chat.completion"),
    **HEAD,
    choices=items(CHAT_CHOICE, least=1),
    usage=USAGE,
    baton_opt=OBJECT,
)
FIRST_CALL = obj(index=COUNT, id=STRING, type=words("function"), function=obj(name=STRING, arguments=words("")))
NEXT_CALL = obj(index=COUNT, function=obj(arguments=STRING))
DELTA = either(
    obj(role=words("assistant"), content=words("")),
    obj(content=STRING),
    obj(reasoning_content=STRING, reasoning=STRING),
    obj(tool_calls=items(either(FIRST_CALL, NEXT_CALL), least=1)),
    obj(),
)
CHUNK_CHOICE = obj(
    index=COUNT, delta=DELTA, logprobs=maybe(CHAT_LOGPROBS), finish_reason=maybe(FINISH), stop_reason_opt=STOP_REASON
)
CHUNK = obj(
    id=begins("chatcmpl-"), object=words("chat.completion.chunk"), **HEAD, choices=items(CHUNK_CHOICE), usage_opt=maybe(USAGE)
)
COMPLETION_LOGPROBS = obj(
    text_offset=items(COUNT),
    token_logprobs=items(maybe(LOGPROB)),
    tokens=items(STRING),
    top_logprobs=items(maybe({"type": "object", "additionalProperties": LOGPROB})),
)
COMPLETION_CHOICE = obj(
    index=COUNT,
    text=STRING,
    logprobs=maybe(COMPLETION_LOGPROBS),
    finish_reason=maybe(words("stop", "length", "abort")),
    stop_reason=STOP_REASON,
    prompt_logprobs_opt=ANY,
)
COMPLETION = obj(
    id=begins("cmpl-"), object=words("text_completion"), **HEAD, choices=items(COMPLETION_CHOICE), usage_opt=maybe(USAGE)
)

# Responses.
RESPONSE_USAGE = obj(
    input_tokens=COUNT,
    input_tokens_details=obj(cached_tokens=COUNT, cache_write_tokens=COUNT),
    output_tokens=COUNT,
    output_tokens_details=obj(reasoning_tokens=COUNT),
    total_tokens=COUNT,
)
OUTPUT_TEXT = obj(type=words("output_text"), annotations=items(ANY), logprobs=items(TOKEN), text=STRING)
STATUS = words("in_progress", "completed", "incomplete")
OUTPUT_MESSAGE = obj(id=begins("msg_"), type=words("message"), status=STATUS, role=words("assistant"), content=items(OUTPUT_TEXT))
FUNCTION_CALL = obj(id=begins("fc_"), type=words("function_call"), status=STATUS, call_id=STRING, name=STRING, arguments=STRING)
REASONING = obj(
    id=begins("rs_"),
    type=words("reasoning"),
    status_opt=STATUS,
    summary=items(ANY),
    content=items(obj(type=words("reasoning_text"), text=STRING)),
)
OUTPUT_ITEM = either(OUTPUT_MESSAGE, FUNCTION_CALL, REASONING)
RESPONSE = obj(
    id=begins("resp_"),
    object=words("response"),
    created_at=COUNT,
    status=words("in_progress", "completed", "incomplete", "failed"),
    completed_at=maybe(COUNT),
    error=maybe(OBJECT),
    incomplete_details=maybe(obj(reason=words("max_output_tokens", "content_filter"))),
    model=STRING,
    output=items(OUTPUT_ITEM),
    usage=maybe(RESPONSE_USAGE),
    **dict.fromkeys(("background", "parallel_tool_calls", "store"), BOOLEAN),
    **dict.fromkeys(("instructions", "previous_response_id", "prompt_cache_key", "safety_identifier", "user"), maybe(STRING)),
    **dict.fromkeys(("max_output_tokens", "max_tool_calls"), maybe(COUNT)),
    **dict.fromkeys(("temperature", "top_p"), NUMBER),
    metadata={"type": "object", "additionalProperties": STRING},
    reasoning=OBJECT,
    service_tier=STRING,
    text=OBJECT,
    tool_choice=either(STRING, OBJECT),
    tools=items(OBJECT),
    top_logprobs=COUNT,
    truncation=words("disabled", "auto"),
)


def event(kind: str, **members: dict) -> dict:
    """Return the shape of an event of a response."""
    return obj(type=words(kind), sequence_number=COUNT, **members)


AT_ITEM = {"item_id": STRING, "output_index": COUNT}
AT_PART = AT_ITEM | {"content_index": COUNT}
RESPONSE_EVENTS = {
    **{
        f"response.{kind}": event(f"response.{kind}", response=RESPONSE)
        for kind in ("created", "in_progress", "completed", "incomplete")
    },
    **{
        f"response.output_item.{kind}": event(f"response.output_item.{kind}", output_index=COUNT, item=OUTPUT_ITEM)
        for kind in ("added", "done")
    },
    **{
        f"response.content_part.{kind}": event(f"response.content_part.{kind}", **AT_PART, part=OUTPUT_TEXT)
        for kind in ("added", "done")
    },
    "response.output_text.delta": event("response.output_text.delta", **AT_PART, delta=STRING, logprobs=items(TOKEN)),
    "response.output_text.done": event("response.output_text.done", **AT_PART, text=STRING, logprobs=items(TOKEN)),
    "response.function_call_arguments.delta": event("response.function_call_arguments.delta", **AT_ITEM, delta=STRING),
    "response.function_call_arguments.done": event(
        "response.function_call_arguments.done", **AT_ITEM, name_opt=STRING, arguments=STRING
    ),
}

# Anthropic's messages.
MESSAGES_USAGE = obj(input_tokens=COUNT, cache_creation_input_tokens=COUNT, cache_read_input_tokens=COUNT, output_tokens=COUNT)
BLOCK = either(
    obj(type=words("text"), text=STRING),
    obj(type=words("thinking"), thinking=STRING, signature=STRING),
    obj(type=words("tool_use"), id=STRING, name=STRING, input=OBJECT),
)
STOP = words("end_turn", "max_tokens", "stop_sequence", "tool_use", "pause_turn")
ANTHROPIC_MESSAGE = obj(
    id=begins("msg_"),
    type=words("message"),
    role=words("assistant"),
    model=STRING,
    content=items(BLOCK),
    stop_reason=maybe(STOP),
    stop_sequence=maybe(STRING),
    usage=MESSAGES_USAGE,
)
MESSAGES_EVENTS = {
    "message_start": obj(type=words("message_start"), message=ANTHROPIC_MESSAGE),
    "ping": obj(type=words("ping")),
    "content_block_start": obj(type=words("content_block_start"), index=COUNT, content_block=BLOCK),
    "content_block_delta": obj(
        type=words("content_block_delta"),
        index=COUNT,
        delta=either(
            obj(type=words("text_delta"), text=STRING),
            obj(type=words("thinking_delta"), thinking=STRING),
            obj(type=words("input_json_delta"), partial_json=STRING),
        ),
    ),
    "content_block_stop": obj(type=words("content_block_stop"), index=COUNT),
    "message_delta": obj(
        type=words("message_delta"), delta=obj(stop_reason=STOP, stop_sequence=maybe(STRING)), usage=MESSAGES_USAGE
    ),
    "message_stop": obj(type=words("message_stop")),
}

# The small endpoints.
MODEL = obj(
    id=STRING,
    object=words("model"),
    created=COUNT,
    owned_by=STRING,
    root=STRING,
    parent=maybe(STRING),
    max_model_len=COUNT,
    weight_scheme=STRING,
    activation_scheme=STRING,
    permission=items(ANY),
)
PREFIX = obj(
    id=STRING,
    object=words("prefix"),
    created=COUNT,
    model=STRING,
    source=words("flag", "api", "folder"),
    version=maybe(STRING),
    state=words("ready"),
    expires_at=maybe(COUNT),
    n_tools=COUNT,
    n_tokens=COUNT,
    n_pinned_tokens=COUNT,
    n_pinned_blocks=COUNT,
    hits=COUNT,
    prefill_ms=NUMBER,
    fill_ms=NUMBER,
    loaded=BOOLEAN,
    stored=BOOLEAN,
)
RENDERED = obj(request_id=begins("chatcmpl-"), model=STRING, token_ids=items(COUNT, least=1), features=NULL)
RENDERED_COMPLETION = items(obj(request_id=begins("cmpl-"), model=STRING, token_ids=items(COUNT), features=NULL), least=1)
