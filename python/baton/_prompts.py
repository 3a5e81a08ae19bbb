"""Prompts in the forms that vLLM takes, as token ids."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, TypedDict

from baton import _engine
from baton.errors import InvalidRequestError


class TextPrompt(TypedDict, total=False):
    """A prompt as text; prompts with different salts share no cached blocks."""

    prompt: str
    cache_salt: str


class TokensPrompt(TypedDict, total=False):
    """A prompt as token ids."""

    prompt_token_ids: list[int]
    cache_salt: str


Prompt = str | TextPrompt | TokensPrompt
Message = dict[str, Any]


def as_list(prompts: Prompt | Sequence[Prompt]) -> list[Prompt]:
    """Return one prompt, or several, as a list of prompts."""
    return [prompts] if isinstance(prompts, str | dict) else list(prompts)


def conversations(messages: Sequence[Message] | Sequence[Sequence[Message]]) -> list[list[Message]]:
    """Return one conversation, or several, as a list of conversations."""
    if messages and isinstance(messages[0], dict):
        return [list(messages)]
    return [list(conversation) for conversation in messages]


def tokens_of(model: _engine.LocalModel, prompt: Prompt, prefix: list[int] | None) -> tuple[str | None, list[int], str]:
    """Return the text of a prompt if it has one, its token ids behind those of `prefix`, and its salt."""
    if isinstance(prompt, str):
        prompt = {"prompt": prompt}
    if not isinstance(prompt, dict):
        raise InvalidRequestError(f"a prompt is a string, or a dict with prompt or prompt_token_ids, not {type(prompt)}", "prompts")
    unknown = set(prompt) - {"prompt", "prompt_token_ids", "cache_salt"}
    if unknown:
        raise InvalidRequestError(f"a prompt's fields {sorted(unknown)} are not supported", "prompts")
    text = prompt.get("prompt")
    ids = prompt.get("prompt_token_ids")
    if ids is None:
        if text is None:
            raise InvalidRequestError("a prompt has neither prompt nor prompt_token_ids", "prompts")
        ids = model.encode(text, add_special_tokens=prefix is None)
    return text, (prefix or []) + list(ids), prompt.get("cache_salt", "")


def _flat(message: Message) -> Message:
    """Return the message with its content as text, where it is a list of text parts."""
    parts = message.get("content")
    if not isinstance(parts, list):
        return message
    for part in parts:
        if part.get("type") != "text":
            raise InvalidRequestError(f"content parts of type {part.get('type')!r} are not supported: only text", "messages")
    return {**message, "content": "\n".join(part["text"] for part in parts)}


def rendered(
    model: _engine.LocalModel,
    messages: list[Message],
    *,
    chat_template: str | None,
    add_generation_prompt: bool,
    continue_final_message: bool,
    tools: list[dict[str, Any]] | None,
    chat_template_kwargs: dict[str, Any] | None,
) -> TokensPrompt:
    """Return a conversation's prompt by the chat template."""
    if add_generation_prompt and continue_final_message:
        raise InvalidRequestError("continue_final_message needs add_generation_prompt=False", "continue_final_message")
    text = model.render(
        messages=json.dumps([_flat(message) for message in messages]),
        tools=json.dumps(tools) if tools else "",
        variables=json.dumps(chat_template_kwargs or {}),
        template_source=chat_template or "",
        add_generation_prompt=add_generation_prompt,
        continues_last=continue_final_message,
    )
    # The template writes the beginning of a text itself.
    return {"prompt_token_ids": model.encode(text, add_special_tokens=False)}
