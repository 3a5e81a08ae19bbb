#!/usr/bin/env python3
"""Samples answers under JSON schemas from a running server, and lets jsonschema judge them.

    tools/json_schema_samples.py URL [--suites FOLDER] [--schemas FILE] [--samples N] [--max-tokens N] [--no-spaces]
        [--report FILE]

URL is a Baton server (http://127.0.0.1:8000). The schemas are those of FILE (bench/grammar/schemas.json), a list of
{"name", "prompt", "schema"}, and with --suites those of the JSON Schema Test Suite, draft 2020-12, of which llguidance's
expected list passes an instance. A schema that the server refuses is named with the reason. The answers are drawn at
temperature 1. Exits 1 if an answer that finished is not valid. Needs the package jsonschema, and zstd for --suites.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import dataclasses
import decimal
import json
import pathlib
import statistics
import sys
import time
import urllib.error
import urllib.request

import json_schema_suite
import jsonschema

ROOT = pathlib.Path(__file__).resolve().parents[1]
DRAFT = json_schema_suite.OPEN
FORMATS = jsonschema.Draft202012Validator.FORMAT_CHECKER
TIMEOUT_SECONDS = 600


@dataclasses.dataclass
class Outcome:
    """The answers under one schema."""

    name: str
    refusal: str = ""
    n_samples: int = 0
    finished: list[int] = dataclasses.field(default_factory=list)
    invalid: list[str] = dataclasses.field(default_factory=list)
    unfinished: list[str] = dataclasses.field(default_factory=list)
    reasons: collections.Counter = dataclasses.field(default_factory=collections.Counter)


def number_of(text: str) -> decimal.Decimal | float:
    """A number with a fraction or an exponent: in binary fractions -388.9 would be no multiple of 0.0001."""
    try:
        return decimal.Decimal(text)
    except decimal.InvalidOperation:  # its exponent has too many digits
        return float(text)


def exact(text: str) -> object:
    """The value of a JSON text."""
    return json.loads(text, parse_float=number_of)


def asked_schemas(arguments: argparse.Namespace) -> list[dict]:
    """The schemas with their names and prompts."""
    asked = json.loads(pathlib.Path(arguments.schemas).read_text())
    if not arguments.suites:
        return asked
    suites = pathlib.Path(arguments.suites)
    expected = json.loads(json_schema_suite.unpacked(suites / json_schema_suite.EXPECTED))[DRAFT]
    for name, group in json_schema_suite.groups_of(suites, DRAFT):
        listed = expected.get(name, {}).get(group["description"], {})
        if "pass" in listed.values():
            asked.append({"name": f"{name}: {group['description']}", "prompt": "An example:", "schema": group["schema"]})
    return asked


def sample(arguments: argparse.Namespace, asked: dict) -> Outcome:
    """Draw the answers under one schema."""
    decimal.getcontext().prec = 4 * arguments.max_tokens  # of this thread
    outcome = Outcome(asked["name"])
    schema = asked["schema"]
    body = {
        "messages": [{"role": "user", "content": asked["prompt"]}],
        "structured_outputs": {"json": schema, "disable_any_whitespace": arguments.no_spaces},
        "n": arguments.samples,
        "seed": arguments.seed + asked["number"],
        "temperature": 1,
        "max_tokens": arguments.max_tokens,
        "return_token_ids": True,
    }
    request = urllib.request.Request(
        f"{arguments.url}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as response:
            answer = json.load(response)
    except urllib.error.HTTPError as error:
        outcome.refusal = json.load(error)["error"]["message"]
        return outcome
    judged = json.dumps(schema).replace(r"\\p{Letter}", r"[^\\W\\d_]")  # Python's expressions have no \p
    validator = jsonschema.Draft202012Validator(exact(judged), format_checker=FORMATS)
    for choice in answer["choices"]:
        text = choice["message"]["content"]
        outcome.n_samples += 1
        outcome.reasons[choice["finish_reason"]] += 1
        if choice["finish_reason"] != "stop":
            outcome.unfinished.append(text)
            continue
        outcome.finished.append(len(choice["token_ids"]))
        try:
            errors = [error.message for error in validator.iter_errors(exact(text))]
        except ValueError as error:
            errors = [f"not JSON: {error}"]
        if errors:
            outcome.invalid.append(f"{text[:300]!r}: {errors[0][:200]}")
    return outcome


def table(outcomes: list[Outcome], *, is_short: bool) -> list[str]:
    """A table with a row a schema, or one row for all of them."""
    rows = [
        "| schemas | samples | finished | valid | tokens, median | longest | schemas with 9 of 10 |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    groups = [("all", outcomes)] if is_short else [(outcome.name, [outcome]) for outcome in outcomes]
    for name, members in groups:
        n_samples = sum(member.n_samples for member in members)
        lengths = [length for member in members for length in member.finished]
        n_invalid = sum(len(member.invalid) for member in members)
        n_good = sum(10 * len(member.finished) >= 9 * member.n_samples for member in members)
        median = f"{statistics.median(lengths):.0f}" if lengths else ""
        longest = max(lengths, default="")
        cells = [name, n_samples, len(lengths), len(lengths) - n_invalid, median, longest, f"{n_good} of {len(members)}"]
        rows.append(f"| {' | '.join(str(cell) for cell in cells)} |")
    return rows


def report(outcomes: list[Outcome], n_own: int) -> str:
    """What is written to the report."""
    answered = [outcome for outcome in outcomes if not outcome.refusal]
    own = [outcome for outcome in outcomes[:n_own] if not outcome.refusal]
    suite = [outcome for outcome in outcomes[n_own:] if not outcome.refusal]
    lines = table(own, is_short=False)
    if suite:
        lines += ["", "The test suite's schemas:", "", *table(suite, is_short=True)]
    few = [outcome for outcome in answered if 10 * len(outcome.finished) < 9 * outcome.n_samples]
    if few:
        lines += ["", "Fewer than 9 of 10 finish:", ""]
        lines += [f"- {outcome.name}: {len(outcome.finished)} of {outcome.n_samples}" for outcome in few]
    refused = [outcome for outcome in outcomes if outcome.refusal]
    if refused:
        lines += ["", "Refused:", "", *(f"- {outcome.name}: {outcome.refusal}" for outcome in refused)]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Read the flags, sample, print, and say whether all that finished is valid."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("url")
    parser.add_argument("--suites")
    parser.add_argument("--schemas", default=ROOT / "bench/grammar/schemas.json")
    parser.add_argument("--samples", type=int, default=10)
    parser.add_argument("--max-tokens", type=int, default=512)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--clients", type=int, default=6)
    parser.add_argument("--no-spaces", action="store_true")
    parser.add_argument("--report")
    parser.add_argument("--show-unfinished", action="store_true")
    arguments = parser.parse_args()
    asked = [one | {"number": number} for number, one in enumerate(asked_schemas(arguments))]
    n_own = len(json.loads(pathlib.Path(arguments.schemas).read_text()))
    begin = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(arguments.clients) as pool:
        outcomes = list(pool.map(lambda one: sample(arguments, one), asked))
    text = report(outcomes, n_own)
    print(text)
    print(
        f"{time.monotonic() - begin:.0f} s; finish reasons: {dict(sum((one.reasons for one in outcomes), collections.Counter()))}"
    )
    if arguments.show_unfinished:
        for outcome in outcomes:
            for unfinished in outcome.unfinished[:2]:
                print(f"unfinished: {outcome.name}: {unfinished[:160]!r} ... {unfinished[-160:]!r}")
    if arguments.report:
        pathlib.Path(arguments.report).write_text(text)
    invalid = [f"{outcome.name}: {one}" for outcome in outcomes for one in outcome.invalid]
    for one in invalid:
        print(f"invalid: {one}")
    return 1 if invalid else 0


if __name__ == "__main__":
    sys.exit(main())
