"""Tiny tokenizers of our own in the shapes that models ship, and what the `tokenizers` library does with hard texts."""

from __future__ import annotations

import base64
import json
import random
import unicodedata
from collections.abc import Iterable
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from goldens.charsmap import compiled

N_VOCAB = 600

# The pre-tokenizer pattern that Llama 3 tokenizer files carry.
LLAMA3_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*" r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)

CORPUS = (
    "A baton is passed from runner to runner, and nobody runs the same stretch twice.",
    "The shared prompt is read once for the whole batch; what follows is each request's own.",
    "We'll see what they've measured: it's 12 ms, 3.5 ms or 1,024 tokens. I'd say that's fine, don't you?",
    "def add(first, second):\n    return first + second\n\n\nif __name__ == '__main__':\n    print(add(1, 2))\n",
    "for (int i = 0; i < n; ++i) {\n\tsum += values[i] * 2;\n}\n",
    "Der Läufer übergibt den Stab an die Läuferin; größer, schöner, weißer, und trotzdem müde.",
    "Le café est à côté de la forêt, où l'été a déjà commencé.",
    "Бегун передаёт палочку дальше, и никто не бежит дважды.",
    "Ο δρομέας παραδίδει τη σκυτάλη στον επόμενο.",
    "接力棒从一个人传给另一个人。今天天气很好。",
    "バトンは次の走者に渡されます。とても速いです。",
    "달리기 선수가 바통을 넘겨줍니다.",
    "Numbers: 0 1 2 3 10 11 12 100 2024 31337 3.14159 -7 +8 1e9 0x1F",
    "Mail: someone@shop.example, page https://shop.example/4821?item=7&lang=en#top",
    "the the the and and and batch batch batch prompt prompt prompt token token token cache cache cache",
)

TEXTS = (
    "",
    " ",
    "  ",
    "     ",
    "\n",
    "\n\n\n",
    "\t",
    " \n \t \r\n ",
    "a",
    " a",
    "a ",
    "  a  b   c    ",
    "Hello, world!",
    "The baton is passed.",
    " The baton is passed.",
    "the batch and the prompt",
    "I'm sure they've said we'll do what she'd done; it's John's, isn't it?",
    "I'M SURE THEY'VE SAID WE'LL",
    "it’s a curly apostrophe",
    "1",
    "12",
    "1234567890",
    "a1b22c333d4444",
    "3.14159, 1,000,000 and -42",
    "٣٤٥ ४५६ Ⅷ ½ ²",
    "line one\nline two\n\nline four",
    "line one\r\nline two\r\n",
    "trailing spaces   \nnext",
    "    four spaces before",
    "\t\ttabs before\tand between\t",
    "def f(x):\n    if x > 0:\n        return x ** 2\n    return -x\n",
    "for(int i=0;i<10;++i){a[i]=i;}",
    '{"name": "Velora K7", "price": [24, 90], "ok": true}',
    "https://shop.example/4821?x=1&y=%20#frag",
    "!!!???...",
    "--- *** ___ ###",
    "$24.90 €5 £6 ¥7 ₿",
    "café naïve Übermut größer",
    "cafe\u0301 nai\u0308ve A\u030a",
    "Бегун передаёт палочку",
    "Ο δρομέας παραδίδει",
    "接力棒从一个人传给另一个人。",
    "バトンは、次の走者に。",
    "달리기 선수",
    "שלום עולם",
    "مرحبا بالعالم",
    "สวัสดีชาวโลก",
    "नमस्ते दुनिया",
    "😀",
    "😀😀 😀",
    "👩‍👩‍👧‍👦 family, 👍🏽 thumb, 🇩🇪 flag, ❤️ heart",
    "mixed: a😀b 接c д1е",
    "\u00a0no\u00a0break\u00a0space",
    "\u2003em\u2003space \u3000 ideographic",
    "zero\u200bwidth\u200djoiner\ufeffbom",
    "null\u0000byte and \u0001\u001f\u007f controls",
    "replacement \ufffd character",
    "\U0010ffff \U000e0001 last planes",
    "ﬁne ligature, ｆｕｌｌ ｗｉｄｔｈ, ℌ",
    "▁lower one▁eighth block ▁ ",
    "x" * 300,
    "ab" * 150 + " " + "\u00e9" * 40,
    " " * 60 + "end",
    "<s>",
    "</s>",
    "text <s> inside </s> text",
    "<s><s></s>",
    "<0x41> <0xE2>",
    "<|endoftext|>",
    "before<|endoftext|>after",
    "  <|endoftext|>  <|endoftext|>\n",
    "<|bos|><|user|>Hi<|end|>",
    "<|begin_of_text|>Hi<|eot_id|>",
    "<|endoftext",
    "a<trim>b",
    "a   <trim>   b",
    "word swordfish word, word1 _word",
    "Tool Tools tool",
    "unknowable zyxwvut qqqq",
)

# The pre-tokenizer pattern of Kimi's tokenization_kimi.py.
KIMI_PATTERN = (
    r"[\p{Han}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

_MORE_TEXTS = {
    # clusters of characters, for the map
    "precompiled": (
        "e\u0301e\u0301\u0302e\u0308\u0308\u0308 n\u0303 a\r\nb\r \u00a9\u0308 \u00a9\u200d\u2600\u0308",
        "\u0915\u094d\u0915\u0308 \u0915\u0308 \u0600a \u1100\u1161\u0308 \u1161\u0308 \u0301 e\u200d",
    ),
    # words in upper and lower case, marks, letters of no case, and Han between them
    "tiktoken": (
        "HelloWorld camelCase JSONParser's IT'S ABCdefGHI",
        "接力abc力棒 a接b ABC天气 々〆〇 的\u0301x 力\u200d 、的",
        "\u01c5\u02b0x\u0301Y \u0301\u0302 \u0915\u094dA バトンABC ㄅㄆ한a",
        "<|im_user|>user<|im_middle|>Hi<|im_end|><|reserved_token_9|>",
        "<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}<|tool_call_end|>",
    ),
}


def _byte_level(pre_tokenizer: pre_tokenizers.PreTokenizer, special: list[str]) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=N_VOCAB,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS * 3, trainer)
    return tokenizer


def _gpt2() -> Tokenizer:
    tokenizer = _byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False), ["<|endoftext|>"])
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return tokenizer


def _llama3() -> Tokenizer:
    split = pre_tokenizers.Split(Regex(LLAMA3_PATTERN), behavior="isolated")
    bytes_only = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    special = ["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"]
    data = json.loads(_byte_level(pre_tokenizers.Sequence([split, bytes_only]), special).to_str())
    # Words that no merge makes: found whole only because of ignore_merges.
    for word in ("Hello", "Ġworld", "Ġswordfish", "unknow"):
        data["model"]["vocab"].setdefault(word, len(data["model"]["vocab"]))
    data["model"]["ignore_merges"] = True
    tokenizer = Tokenizer.from_str(json.dumps(data))
    begin = "<|begin_of_text|>"
    template = processors.TemplateProcessing(
        single=f"{begin} $A", pair=f"{begin} $A {begin}:1 $B:1", special_tokens=[(begin, tokenizer.token_to_id(begin))]
    )
    tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template])
    return tokenizer


def _llama2() -> Tokenizer:
    special = ["<unk>", "<s>", "</s>"]
    byte_tokens = [f"<0x{byte:02X}>" for byte in range(256)]
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.pre_tokenizer = pre_tokenizers.Split("▁", behavior="merged_with_next")  # for training only
    trainer = trainers.BpeTrainer(
        vocab_size=N_VOCAB, special_tokens=[*special, *byte_tokens], limit_alphabet=90, show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS * 3, trainer)
    data = json.loads(tokenizer.to_str())
    data["pre_tokenizer"] = None
    data["added_tokens"] = [token for token in data["added_tokens"] if token["content"] in special]
    tokenizer = Tokenizer.from_str(json.dumps(data))
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", 1)])
    return tokenizer


def _digits() -> Tokenizer:
    pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    return _byte_level(pre_tokenizer, ["<|pad|>", "<|bos|>", "<|user|>", "<|end|>"])


def _added_tokens() -> Tokenizer:
    tokenizer = _gpt2()
    tokenizer.add_special_tokens([AddedToken("<trim>", lstrip=True, rstrip=True, special=True)])
    tokenizer.add_tokens([AddedToken("word", single_word=True), AddedToken("Tool", normalized=False)])
    return tokenizer


def _unigram() -> Tokenizer:
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=400, special_tokens=["<unk>", "<s>", "</s>"], unk_token="<unk>", show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS * 3, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 2)])
    return tokenizer


def _unigram_bytes() -> Tokenizer:
    data = json.loads(_unigram().to_str())
    pieces = data["model"]["vocab"]
    data["model"]["vocab"] = pieces[:3] + [[f"<0x{byte:02X}>", -20.0] for byte in range(256)] + pieces[3:]
    data["model"]["byte_fallback"] = True
    tokenizer = Tokenizer.from_str(json.dumps(data))
    tokenizer.normalizer = None
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 1))
    return tokenizer


def _word_ends() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>", continuing_subword_prefix="@"))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase(), normalizers.Strip()]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.WhitespaceSplit(),
            pre_tokenizers.Punctuation(),
        ]
    )
    tokenizer.decoder = decoders.BPEDecoder()
    trainer = trainers.BpeTrainer(
        vocab_size=N_VOCAB,
        special_tokens=["<unk>"],
        end_of_word_suffix="</w>",
        continuing_subword_prefix="@",
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS * 3, trainer)
    return tokenizer


def _map_of_characters() -> bytes:
    """Rules like those of SentencePiece's nmt_nfkc, and some that show which beginning of a cluster counts."""
    codes = [*range(0xA0, 0x180), 0x3000, 0x3002, *range(0x2460, 0x2480), *range(0xFB00, 0xFB05), *range(0xFF01, 0xFF5F)]
    rules = {chr(code).encode(): unicodedata.normalize("NFKC", chr(code)) for code in codes}
    rules = {key: text for key, text in rules.items() if key.decode() != text}
    for letter in "eaounOc":
        for mark in "\u0300\u0301\u0302\u0308\u0327":
            rules[(letter + mark).encode()] = unicodedata.normalize("NFC", letter + mark)
    # The shorter key wins, although the longer one is there, and the mark is lost.
    rules |= {
        b"n": "n",
        "n\u0303".encode(): "\u00f1",
        b"\t": " ",
        b"\r\n": " ",
        b"\r": "",
        "\u200b".encode(): "",
        "ß".encode(): "ss",
    }
    rules |= {"\u00a9".encode(): "(c)", "\u0915".encode(): "ka", "\u2600".encode(): "sun", "\u1100".encode(): "g"}
    return compiled(rules)


def _precompiled() -> Tokenizer:
    tokenizer = _unigram()
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Precompiled(_map_of_characters()), normalizers.Strip(left=False), normalizers.Replace(Regex(" {2,}"), "▁")]
    )
    return tokenizer


def _write_tekken(folder: Path) -> Tokenizer:
    """Writes a tekken.json, with room for more special tokens and more tokens than it says, and what Transformers makes of it."""
    from transformers.integrations.mistral.tokenizer import MistralConverter

    tokens = _ranked_tokens()
    special = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]"]
    root = {
        "config": {
            "pattern": LLAMA3_PATTERN,
            "num_vocab_tokens": len(tokens),
            "default_vocab_size": len(tokens) - 5,
            "default_num_special_tokens": 8,
            "version": "v3",
        },
        "vocab": [
            {"rank": rank, "token_bytes": base64.b64encode(token).decode(), "token_str": token.decode(errors="replace")}
            for rank, token in enumerate(tokens)
        ],
        "special_tokens": [{"rank": rank, "token_str": token, "is_control": True} for rank, token in enumerate(special)],
    }
    (folder / "tekken.json").write_text(json.dumps(root, indent=0) + "\n")
    return MistralConverter(str(folder / "tekken.json")).converted()


def _write_tiktoken(folder: Path) -> Tokenizer:
    """Writes a tiktoken.model with a tokenizer_config.json as Kimi's, and the tokenizer.json that means the same."""
    tokens = _ranked_tokens()
    lines = [f"{base64.b64encode(token).decode()} {rank}\n" for rank, token in enumerate(tokens)]
    (folder / "tiktoken.model").write_text("".join(lines))
    named = ["[BOS]", "[EOS]", "<|im_end|>", "<|im_user|>", "<|im_middle|>", "<|tool_call_begin|>", "<|tool_call_end|>"]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    added = {
        len(tokens) + 2 * i: {"content": text, "special": not text.startswith("<|tool"), **flags} for i, text in enumerate(named)
    }
    config = {
        "tokenizer_class": "TikTokenTokenizer",
        "bos_token": "[BOS]",
        "eos_token": "[EOS]",
        "add_bos_token": True,  # the class does not heed it
        "added_tokens_decoder": {str(token): entry for token, entry in added.items()},
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1) + "\n")

    names = _bytes_to_characters()
    spelled = {token: "".join(names[byte] for byte in token) for token in tokens}
    merges = [
        (spelled[token[:cut]], spelled[token[cut:]])
        for token in tokens
        for cut in range(1, len(token))
        if token[:cut] in spelled and token[cut:] in spelled
    ]
    vocab = {spelled[token]: rank for rank, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges=True))
    split = pre_tokenizers.Split(Regex(KIMI_PATTERN), behavior="isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    for token in range(len(tokens), len(tokens) + 256):
        entry = added.get(token, {"content": f"<|reserved_token_{token}|>", "special": True})
        (tokenizer.add_special_tokens if entry["special"] else tokenizer.add_tokens)(
            [AddedToken(entry["content"], special=entry["special"], normalized=False)]
        )
    return tokenizer


def _ranked_tokens() -> list[bytes]:
    """The bytes, then what merges make, as the encodings of tiktoken rank them."""
    vocab = json.loads(_byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False), []).to_str())["model"]["vocab"]
    byte_of = {character: byte for byte, character in _bytes_to_characters().items()}
    tokens = [bytes(byte_of[c] for c in token) for token, _ in sorted(vocab.items(), key=lambda item: item[1])]
    return [bytes([byte]) for byte in range(256)] + [token for token in tokens if len(token) > 1]


def _bytes_to_characters() -> dict[int, str]:
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return {byte: chr(byte) for byte in plain} | {byte: chr(0x100 + i) for i, byte in enumerate(others)}


def _id_lists(tokenizer: Tokenizer) -> Iterable[list[int]]:
    rng = random.Random(7)
    for length in (1, 1, 1, 2, 2, 3, 3, 4, 5, 8, 13, 21):
        for _ in range(3):
            yield [rng.randrange(tokenizer.get_vocab_size()) for _ in range(length)]
    whole = tokenizer.encode("👩‍👧 接力 дé").ids
    for cut in range(1, len(whole)):
        yield whole[:cut]
        yield whole[cut:]


_MAKERS = {
    "gpt2": _gpt2,
    "llama3": _llama3,
    "llama2": _llama2,
    "digits": _digits,
    "added_tokens": _added_tokens,
    "unigram": _unigram,
    "unigram_bytes": _unigram_bytes,
    "word_ends": _word_ends,
    "precompiled": _precompiled,
}
_WITH_ENDS = ("llama2", "llama3", "unigram", "unigram_bytes", "precompiled")


def _write_cases(folder: Path, tokenizer: Tokenizer) -> None:
    def decoded(ids: list[int]) -> dict:
        return {
            "ids": ids,
            "decoded": tokenizer.decode(ids, skip_special_tokens=False),
            "decoded_skip_special": tokenizer.decode(ids, skip_special_tokens=True),
        }

    encode = [
        {"text": text, "add_special_tokens": flag, **decoded(tokenizer.encode(text, add_special_tokens=flag).ids)}
        for text in (*TEXTS, *_MORE_TEXTS.get(folder.name, ()))
        for flag in ((False, True) if folder.name in _WITH_ENDS else (False,))
    ]
    cases = {"encode": encode, "decode": [decoded(ids) for ids in _id_lists(tokenizer)]}
    lines = ",\n".join(
        f'"{key}": [\n' + ",\n".join(json.dumps(case) for case in cases[key]) + "\n]" for key in ("encode", "decode")
    )
    (folder / "cases.json").write_text("{\n" + lines + "\n}\n")
    print(f"tokenizers/{folder.name}: {tokenizer.get_vocab_size()} tokens, {len(encode)} texts, {len(cases['decode'])} id lists")


def write_tokenizers(goldens: Path) -> None:
    """Writes tokenizers/NAME/tokenizer.json (or tekken.json, tiktoken.model) and cases.json: encode cases, and decode cases of ids no text gives."""
    for name, make in _MAKERS.items():
        folder = goldens / "tokenizers" / name
        folder.mkdir(parents=True, exist_ok=True)
        make().save(str(folder / "tokenizer.json"))
        _write_cases(folder, Tokenizer.from_file(str(folder / "tokenizer.json")))
    for name, write in (("tekken", _write_tekken), ("tiktoken", _write_tiktoken)):
        folder = goldens / "tokenizers" / name
        folder.mkdir(parents=True, exist_ok=True)
        _write_cases(folder, write(folder))
