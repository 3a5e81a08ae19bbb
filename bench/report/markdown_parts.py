"""Markdown of tables, and what stands under them."""

import textwrap


def markdown(header, rows):
    lines = [f"| {' | '.join(header)} |", "|" + "---|" * len(header)]
    return "\n".join(lines + [f"| {' | '.join(row)} |" for row in rows])


def number(value, digits=2, unit=""):
    return "-" if value is None else f"{value:,.{digits}f}{unit}"


def percent(share):
    return "-" if share is None else f"{100 * share:.0f}%"


def wrapped_command(command):
    """A command as an indented block of lines that end before column 120."""
    lines = textwrap.wrap(command, 108, break_long_words=False, break_on_hyphens=False)
    return " \\\n".join(["    " + lines[0], *("      " + line for line in lines[1:])])


OLDER = "†"


def marked(text, results, *ones):
    """The text of a cell, with a mark if one of these measurements is of a build before the newest."""
    return f"{text} {OLDER}" if any(map(results.is_marked, ones)) else text


def about(results, table=""):
    """What stands under a table: machine, date, commits and builds, which rows are older, one of the commands."""
    notes = f"{results.about()}. {results.older(OLDER if OLDER in table else '')}".rstrip()
    return f"{notes} For example:\n\n{wrapped_command(results.measured[0].rows[0]['command'])}"


def failures(results):
    """Lines for points that did not run."""
    lines = []
    for row in results.failures:
        needed, there = row["numbers"].get("bytes_needed"), row["numbers"].get("bytes_available")
        memory = f" (needs {needed:,} bytes, {there:,} available)" if needed and there else ""
        arm = "" if row["arm"] == "-" else f", {row['arm']}"
        error = row["error"].split(" / ")[-1].rstrip(": ")  # a job's error is its last lines of output
        lines.append(f"- did not run on {row['date'][:10]}: {row['job']}{arm}: {error}{memory}")
    return "\n".join(dict.fromkeys(lines))


def with_notes(table, results):
    return "\n\n".join(text for text in (table, failures(results), about(results, table)) if text)
