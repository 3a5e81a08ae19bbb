"""get_tokenizer: the model's own tokenizer, with the names that scripts for vLLM use."""

from __future__ import annotations

import pytest
from baton import LLM, InvalidRequestError, Tokenizer, UnsupportedError

TEXTS = ("Hello there", "", "Grüße, 🙂!", "  two  spaces\n")
MESSAGES = [{"role": "user", "content": "What does the lamp cost?"}]


@pytest.fixture
def tokenizer(llm: LLM) -> Tokenizer:
    """That of the demo model."""
    return llm.get_tokenizer(lora_request=None)


def test_texts_come_back(llm: LLM, tokenizer: Tokenizer) -> None:
    """Encoded as prompts are."""
    for text in TEXTS:
        ids = tokenizer.encode(text, add_special_tokens=False)
        assert tokenizer.decode(ids) == text
        assert tokenizer.encode(text) == llm.encode(text)
        assert tokenizer(text).input_ids == tokenizer(text)["input_ids"] == tokenizer.encode(text)
        assert len(tokenizer(text).attention_mask) == len(tokenizer.encode(text))
    assert tokenizer(list(TEXTS))["input_ids"] == [tokenizer.encode(text) for text in TEXTS]
    assert tokenizer.batch_decode(tokenizer(list(TEXTS), add_special_tokens=False).input_ids) == list(TEXTS)
    assert tokenizer.decode(tokenizer.encode("a", add_special_tokens=False)[0]) == "a"
    with pytest.raises(AttributeError):
        _ = tokenizer("a").nonsense


def test_tokens_have_names(tokenizer: Tokenizer) -> None:
    """The vocabulary, and the tokens with a part to play."""
    assert len(tokenizer) == tokenizer.vocab_size == len(set(tokenizer.get_vocab().values()))
    assert tokenizer.eos_token_id is not None
    assert tokenizer.convert_tokens_to_ids(tokenizer.eos_token) == tokenizer.eos_token_id
    assert tokenizer.eos_token_id in tokenizer.all_special_ids
    assert tokenizer.eos_token in tokenizer.all_special_tokens
    assert tokenizer.decode([tokenizer.eos_token_id]) == tokenizer.eos_token
    assert tokenizer.decode([tokenizer.eos_token_id], skip_special_tokens=True) == ""
    for role in ("bos", "pad", "unk"):
        name, number = getattr(tokenizer, f"{role}_token"), getattr(tokenizer, f"{role}_token_id")
        assert (name is None) == (number is None)
        assert name is None or tokenizer.convert_ids_to_tokens(number) == name
    words = tokenizer.tokenize("Hello there")
    assert tokenizer.convert_tokens_to_ids(words) == tokenizer.encode("Hello there", add_special_tokens=False)
    assert tokenizer.convert_tokens_to_ids("no such token at all") == tokenizer.unk_token_id
    assert tokenizer.model_max_length > 0
    assert "demo" in repr(tokenizer)


def test_templates_are_the_model_s(llm: LLM, tokenizer: Tokenizer) -> None:
    """What chat would answer, as text and as ids; template variables reach the template."""
    ids = tokenizer.apply_chat_template(MESSAGES, add_generation_prompt=True)
    assert ids == llm.chat(MESSAGES)[0].prompt_token_ids
    text = tokenizer.apply_chat_template(MESSAGES, tokenize=False, add_generation_prompt=True)
    assert tokenizer.encode(text, add_special_tokens=False) == ids
    assert len(tokenizer.apply_chat_template(MESSAGES)) < len(ids)
    assert tokenizer.apply_chat_template([MESSAGES, MESSAGES], add_generation_prompt=True) == [ids, ids]
    own = "{{ messages[0].content }} {{ mood }} {{ documents[0].title }}"
    made = tokenizer.apply_chat_template(
        MESSAGES, chat_template=own, tokenize=False, documents=[{"title": "Lamps"}], mood="gladly", padding=False
    )
    assert made == "What does the lamp cost? gladly Lamps"
    with pytest.raises(InvalidRequestError, match="continue_final_message"):
        tokenizer.apply_chat_template(MESSAGES, add_generation_prompt=True, continue_final_message=True)


def test_what_it_cannot_do_is_refused_by_name(llm: LLM, tokenizer: Tokenizer) -> None:
    """As elsewhere."""
    for name, value in (("return_tensors", "pt"), ("truncation", True), ("max_length", 4), ("padding", "longest")):
        with pytest.raises(UnsupportedError, match=f"{name}=") as refused:
            tokenizer.encode("Hello", **{name: value})
        assert refused.value.param == name
    with pytest.raises(UnsupportedError, match="return_dict="):
        tokenizer.apply_chat_template(MESSAGES, return_dict=True)
    with pytest.raises(TypeError, match="nonsense"):
        tokenizer("Hello", nonsense=1)
    with pytest.raises(UnsupportedError, match="lora_request="):
        llm.get_tokenizer(lora_request=object())
