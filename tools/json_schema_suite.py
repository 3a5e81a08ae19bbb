#!/usr/bin/env python3
"""Runs the JSON Schema Test Suite through Baton's grammars: instance by instance, token by token.

    tools/json_schema_suite.py SUITES CHECK_INSTANCES TOKENIZER.json [--report FILE] [--verbose] [--walks N]

SUITES is the folder with json-schema-test-suite-DRAFT.tar.zst and the expected list of llguidance; CHECK_INSTANCES the
program of that name (build/PRESET/tests). Needs the zstd program. Exits 1 if an instance that the expected list marks as
"pass" is judged wrongly, or if a schema that it compiles is refused. With --walks, N texts of random allowed tokens are
judged by the package jsonschema too, and answers that it finds invalid are printed; its patterns are Python's, so some are right.
"""

import argparse
import collections
import io
import json
import subprocess
import sys
import tarfile
from pathlib import Path

OPEN = "draft2020-12"
EXPECTED = "llguidance_expected_json_schema_test_suite.json.zst"


def unpacked(path):
    """The bytes of a .zst file."""
    return subprocess.run(["zstd", "-dc", str(path)], check=True, capture_output=True).stdout


def groups_of(suites, draft):
    """(file, group) of each schema of a draft."""
    with tarfile.open(fileobj=io.BytesIO(unpacked(suites / f"json-schema-test-suite-{draft}.tar.zst"))) as archive:
        for member in sorted(archive.getmembers(), key=lambda m: m.name):
            if not member.name.endswith(".json"):
                continue
            name = member.name.split(f"{draft}/", 1)[1].removesuffix(".json")
            for group in json.load(archive.extractfile(member)):
                yield name, group


def judge(program, tokenizer, groups, walks):
    """The verdict of each group, by one run of the program."""
    lines = []
    for _, group in groups:
        schema = group["schema"]
        if isinstance(schema, dict) and "draft7" in group.get("draft", ""):
            schema = {"$schema": "http://json-schema.org/draft-07/schema#", **schema}
        instances = [json.dumps(test["data"], ensure_ascii=False) for test in group["tests"]]
        request = {"kind": "json_schema", "text": json.dumps(schema), "instances": instances, "walks": walks}
        lines.append(json.dumps(request))
    run = subprocess.run([program, tokenizer], input="\n".join(lines) + "\n", capture_output=True, text=True, encoding="utf-8")
    if run.returncode != 0:
        sys.exit(f"json_schema_suite: {program} ended with {run.returncode}: {run.stderr}")
    return [json.loads(line) for line in run.stdout.split("\n") if line]


def tally(groups, verdicts, expected, verbose):
    """Counts by file, and what is wrong: {file: Counter}, [sentence]."""
    counts = collections.defaultdict(collections.Counter)
    faults = []
    for (name, group), verdict in zip(groups, verdicts, strict=True):
        listed = expected.get(name, {}).get(group["description"], {})
        for index, test in enumerate(group["tests"]):
            target = listed.get(test["description"], "unlisted")
            if "error" in verdict:
                result = "refused"
                wrong = target == "pass" and not cannot_match(group, verdict)
            else:
                accepted = verdict["accepted"][index]
                result = "right" if accepted == test["valid"] else "wrongly accepted" if accepted else "wrongly refused"
                wrong = target == "pass" and result != "right"
            counts[name][result] += 1
            counts[name]["listed"] += target == "pass"
            counts[name]["listed right"] += target == "pass" and not wrong
            if wrong or (verbose and result.startswith("wrongly")):
                faults.append(
                    (
                        wrong,
                        f"{name} | {group['description']} | {test['description']}: {result} (listed as {target})"
                        f" {json.dumps(group['schema'])[:300]} {json.dumps(test['data'])[:100]} {verdict.get('error', '')}",
                    )
                )
    return counts, faults


def cannot_match(group, verdict):
    """Whether a schema is refused because no value matches it, which is right for all its instances."""
    return "no text can match" in verdict["error"] and not any(test["valid"] for test in group["tests"])


def table(counts):
    """A Markdown table of the counts, a line for each file."""
    columns = ["right", "wrongly accepted", "wrongly refused", "refused", "listed", "listed right"]
    lines = ["| file | " + " | ".join(columns) + " |", "|---|" + "---:|" * len(columns)]
    total = collections.Counter()
    for name in sorted(counts):
        total.update(counts[name])
        lines.append(f"| {name} | " + " | ".join(str(counts[name][column]) for column in columns) + " |")
    lines.append("| **all** | " + " | ".join(f"**{total[column]}**" for column in columns) + " |")
    return "\n".join(lines), total


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suites", type=Path)
    parser.add_argument("program")
    parser.add_argument("tokenizer")
    parser.add_argument("--report", type=Path, help="write the tables to this file")
    parser.add_argument("--verbose", action="store_true", help="name every instance that is judged wrongly")
    parser.add_argument("--walks", type=int, default=0, help="texts of random allowed tokens for each schema")
    options = parser.parse_args()
    expected = json.loads(unpacked(options.suites / EXPECTED))
    report = []
    failed = False
    for draft in (OPEN, "draft7"):
        groups = list(groups_of(options.suites, draft))
        if draft == "draft7":
            for _, group in groups:
                group["draft"] = "draft7"
        verdicts = judge(options.program, options.tokenizer, groups, options.walks)
        counts, faults = tally(groups, verdicts, expected.get(draft, {}), options.verbose)
        text, total = table(counts)
        compiled = [verdict for verdict in verdicts if "error" not in verdict]
        reasons = collections.Counter(reason_of(verdict["error"]) for verdict in verdicts if "error" in verdict)
        if options.walks:
            print(f"{draft}: random texts: {dict(judge_texts(draft, groups, verdicts))}")
        print(f"{draft}: {len(groups)} schemas, {len(compiled)} compiled; instances: {dict(total)}")
        for wrong, fault in faults:
            print(("FAULT " if wrong else "note  ") + fault)
            failed = failed or wrong
        report += [
            f"## {draft}",
            "",
            f"{len(groups)} schemas, {len(compiled)} compiled.",
            "",
            text,
            "",
            "Refused schemas, by reason:",
            "",
        ]
        report += [f"- {count}: {reason}" for reason, count in reasons.most_common()] + [""]
    if options.report:
        options.report.write_text("\n".join(report), encoding="utf-8")
    return 1 if failed else 0


def judge_texts(draft, groups, verdicts):
    """Counts what the package jsonschema says of the random texts; prints the invalid ones."""
    import jsonschema  # only --walks needs it

    judge_class = jsonschema.Draft7Validator if draft == "draft7" else jsonschema.Draft202012Validator
    counts = collections.Counter()
    for (_, group), verdict in zip(groups, verdicts, strict=True):
        for text in verdict.get("texts", []):
            try:
                is_valid = judge_class(group["schema"]).is_valid(json.loads(text))
            except Exception:  # it knows no Unicode property, for one
                counts["not judged"] += 1
                continue
            counts["valid" if is_valid else "invalid"] += 1
            if not is_valid:
                print(f"invalid: {json.dumps(group['schema'])[:300]} {text[:200]}")
    return counts


def reason_of(error):
    """A refusal without the path of the keyword in it."""
    words = error.removeprefix("the JSON schema: ").split(" ")
    if words[0].startswith("#"):
        words[0] = words[0].rsplit("/", 1)[-1]
    return " ".join(words)[:100]


if __name__ == "__main__":
    sys.exit(main())
