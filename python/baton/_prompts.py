"""Prompts in the forms that vLLM takes, as token ids."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, TypedDict

from baton import _engine, _neutral
from baton.errors import InvalidRequestError


class TextPrompt(TypedDict, total=False):
    """A prompt as text; prompts with different salts share no cached blocks."""

    prompt: str
    cache_salt: str


class TokensPrompt(TypedDict, total=False):
    """A prompt as token ids."""

    prompt_token_ids: list[int]
    cache_salt: str


Prompt = str | list[int] | TextPrompt | TokensPrompt
Message = dict[str, Any]


def is_ids(prompt: Any) -> bool:  # noqa: ANN401
    """Return whether a prompt is a list of token ids."""
    return isinstance(prompt, list | tuple) and bool(prompt) and all(isinstance(token, int) for token in prompt)


def as_list(prompts: Prompt | Sequence[Prompt]) -> list[Prompt]:
    """Return one prompt, or several, as a list of prompts."""
    return [prompts] if isinstance(prompts, str | dict) or is_ids(prompts) else list(prompts)


def is_conversation(messages: Sequence[Message] | Sequence[Sequence[Message]]) -> bool:
    """Return whether it is one, rather than a list of several."""
    return bool(messages) and isinstance(messages[0], dict)


def conversations(messages: Sequence[Message] | Sequence[Sequence[Message]]) -> list[list[Message]]:
    """Return one conversation, or several, as a list of conversations."""
    return [list(messages)] if is_conversation(messages) else [list(conversation) for conversation in messages]


def tokens_of(model: _engine.LocalModel, prompt: Prompt, prefix: list[int] | None) -> tuple[str | None, list[int], str]:
    """Return the text of a prompt if it has one, its token ids after those of `prefix`, and its salt."""
    if isinstance(prompt, str):
        prompt = {"prompt": prompt}
    elif isinstance(prompt, list | tuple):
        prompt = {"prompt_token_ids": list(prompt)}
    if not isinstance(prompt, dict):
        forms = "text, a list of token ids, or a dict with prompt or prompt_token_ids"
        raise InvalidRequestError(f"a prompt is {forms}, not {type(prompt).__name__}", "prompts")
    unknown = sorted(set(prompt) - {"prompt", "prompt_token_ids", "cache_salt"} - set(_neutral.PROMPTS))
    if unknown:
        raise InvalidRequestError(f"a prompt's fields {unknown} are not known", "prompts")
    _neutral.check(_neutral.PROMPTS, ((name, value) for name, value in prompt.items() if name in _neutral.PROMPTS))
    text = prompt.get("prompt")
    ids = prompt.get("prompt_token_ids")
    if ids is None:
        if text is None:
            raise InvalidRequestError("a prompt has neither prompt nor prompt_token_ids", "prompts")
        ids = model.encode(text, add_special_tokens=prefix is None)
    return text, (prefix or []) + list(ids), prompt.get("cache_salt") or ""


def _flat(message: Message) -> Message:
    """Return the message with its content as text, where it is a list of text parts."""
    parts = message.get("content")
    if not isinstance(parts, list):
        return message
    for part in parts:
        if part.get("type") != "text":
            raise InvalidRequestError(f"content parts of type {part.get('type')!r} are not supported: only text", "messages")
    return {**message, "content": "\n".join(part["text"] for part in parts)}


def chat_text(
    model: _engine.LocalModel,
    messages: list[Message],
    *,
    chat_template: str | None,
    add_generation_prompt: bool,
    continue_final_message: bool,
    tools: list[dict[str, Any]] | None,
    chat_template_kwargs: dict[str, Any] | None,
) -> str:
    """Return the text of a conversation's prompt by the chat template."""
    if add_generation_prompt and continue_final_message:
        raise InvalidRequestError("continue_final_message needs add_generation_prompt=False", "continue_final_message")
    return model.render(
        messages=json.dumps([_flat(message) for message in messages]),
        tools=json.dumps(tools) if tools else "",
        variables=json.dumps(chat_template_kwargs or {}),
        template_source=chat_template or "",
        add_generation_prompt=add_generation_prompt,
        continues_last=continue_final_message,
    )


def rendered(model: _engine.LocalModel, messages: list[Message], **options: Any) -> TokensPrompt:  # noqa: ANN401
    """Return a conversation's prompt by the chat template, which writes the beginning of a text itself."""
    return {"prompt_token_ids": model.encode(chat_text(model, messages, **options), add_special_tokens=False)}
