"""A loaded model's tokenizer, with the names that Transformers' tokenizers have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from baton import _engine, _neutral, _prompts


class Encoding(dict[str, Any]):
    """What calling a tokenizer gives: input_ids and attention_mask, as items and as attributes."""

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        """Return an item."""
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


class Tokenizer:
    """Texts to ids and back, as the engine does it. It keeps the model; ids are lists of integers."""

    is_fast = True

    def __init__(self, model: _engine.LocalModel) -> None:
        """Take the tokenizer of a model."""
        self._model = model
        self._roles = dict(model.role_tokens)

    def __repr__(self) -> str:
        """Return the model's name and the number of tokens."""
        return f"Tokenizer({self.name_or_path!r}, {len(self)} tokens)"

    def __len__(self) -> int:
        """Return the largest id + 1."""
        return self._model.n_tokens

    @property
    def vocab_size(self) -> int:
        """The largest id + 1."""
        return len(self)

    @property
    def name_or_path(self) -> str:
        """The model's name."""
        return self._model.name

    @property
    def model_max_length(self) -> int:
        """Tokens of the longest context."""
        return self._model.max_model_len

    @property
    def bos_token_id(self) -> int | None:
        """The id that begins a text."""
        return self._model.bos_token_id

    @property
    def eos_token_id(self) -> int | None:
        """The id that ends a text."""
        return self._model.eos_token_id

    @property
    def pad_token_id(self) -> int | None:
        """The id that fills a batch."""
        return self._id(self.pad_token)

    @property
    def unk_token_id(self) -> int | None:
        """The id of what the vocabulary cannot spell."""
        return self._id(self.unk_token)

    @property
    def bos_token(self) -> str | None:
        """The token that begins a text."""
        return self._token("bos_token", self.bos_token_id)

    @property
    def eos_token(self) -> str | None:
        """The token that ends a text."""
        return self._token("eos_token", self.eos_token_id)

    @property
    def pad_token(self) -> str | None:
        """The token that fills a batch."""
        return self._roles.get("pad_token")

    @property
    def unk_token(self) -> str | None:
        """The token of what the vocabulary cannot spell."""
        return self._roles.get("unk_token")

    @property
    def all_special_ids(self) -> list[int]:
        """The ids that skip_special_tokens leaves out."""
        return [token for token in range(len(self)) if self._model.is_special(token)]

    @property
    def all_special_tokens(self) -> list[str]:
        """The tokens that skip_special_tokens leaves out."""
        return [self._model.token_text(token) for token in self.all_special_ids]

    def encode(self, text: str, *, add_special_tokens: bool = True, **others: Any) -> list[int]:  # noqa: ANN401
        """Return the ids of a text."""
        _neutral.check(_neutral.TOKENIZER, _known("encode", others))
        return self._model.encode(text, add_special_tokens)

    def __call__(self, text: str | Sequence[str], *, add_special_tokens: bool = True, **others: Any) -> Encoding:  # noqa: ANN401
        """Return the ids of a text, or of several."""
        _neutral.check(_neutral.TOKENIZER, _known("a tokenizer", others))
        ids: list[Any]
        if isinstance(text, str):
            ids = self._model.encode(text, add_special_tokens)
            return Encoding(input_ids=ids, attention_mask=[1] * len(ids))
        ids = [self._model.encode(each, add_special_tokens) for each in text]
        return Encoding(input_ids=ids, attention_mask=[[1] * len(each) for each in ids])

    def decode(self, token_ids: int | Sequence[int], *, skip_special_tokens: bool = False, **others: Any) -> str:  # noqa: ANN401
        """Return the text of ids."""
        _neutral.check(_neutral.TOKENIZER, _known("decode", others))
        ids = [token_ids] if isinstance(token_ids, int) else [int(token) for token in token_ids]
        return self._model.decode(ids, skip_special_tokens)

    def batch_decode(self, sequences: Sequence[Sequence[int]], **options: Any) -> list[str]:  # noqa: ANN401
        """Return the texts of several lists of ids."""
        return [self.decode(ids, **options) for ids in sequences]

    def tokenize(self, text: str, *, add_special_tokens: bool = False) -> list[str]:
        """Return the tokens of a text as the vocabulary spells them."""
        return self.convert_ids_to_tokens(self._model.encode(text, add_special_tokens))

    def convert_ids_to_tokens(self, ids: int | Sequence[int]) -> Any:  # noqa: ANN401
        """Return how the vocabulary spells an id, or each of several."""
        return self._model.token_text(ids) if isinstance(ids, int) else [self._model.token_text(token) for token in ids]

    def convert_tokens_to_ids(self, tokens: str | Sequence[str]) -> Any:  # noqa: ANN401
        """Return the id of a token as the vocabulary spells it (unknown: that of unk_token, or None), or of several."""
        return self._id(tokens) if isinstance(tokens, str) else [self._id(token) for token in tokens]

    def get_vocab(self) -> dict[str, int]:
        """Return the id of each token."""
        spelled = ((self._model.token_text(token), token) for token in range(len(self)))
        return {text: token for text, token in spelled if text}

    def apply_chat_template(
        self,
        conversation: Sequence[_prompts.Message] | Sequence[Sequence[_prompts.Message]],
        tools: list[dict[str, Any]] | None = None,
        documents: list[dict[str, str]] | None = None,
        chat_template: str | None = None,
        add_generation_prompt: bool = False,
        continue_final_message: bool = False,
        tokenize: bool = True,
        **variables: Any,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        """Return the ids (or with tokenize=False the text) of a conversation's prompt, or of several conversations' prompts."""
        options = {name: variables.pop(name) for name in _neutral.TOKENIZER if name in variables}
        _neutral.check(_neutral.TOKENIZER, options.items())
        if documents is not None:
            variables["documents"] = documents
        texts = [
            _prompts.chat_text(
                self._model,
                messages,
                chat_template=chat_template,
                add_generation_prompt=add_generation_prompt,
                continue_final_message=continue_final_message,
                tools=tools,
                chat_template_kwargs=variables,
            )
            for messages in _prompts.conversations(conversation)
        ]
        made = [self._model.encode(text, add_special_tokens=False) for text in texts] if tokenize else texts
        return made[0] if _prompts.is_conversation(conversation) else made

    def _token(self, role: str, token: int | None) -> str | None:
        return self._roles.get(role) or (None if token is None else self._model.token_text(token))

    def _id(self, token: str | None) -> int | None:
        if token is None:
            return None
        found = self._model.id_of(token)
        return found if found is not None or token == self.unk_token else self._id(self.unk_token)


def _known(call: str, others: dict[str, Any]) -> list[tuple[str, Any]]:
    """Refuse arguments that no tokenizer has."""
    for name in others:
        if name not in _neutral.TOKENIZER:
            raise TypeError(f"{call} has no argument {name!r}")
    return list(others.items())
