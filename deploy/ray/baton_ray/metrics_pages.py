"""The /metrics pages of several replicas as one page."""

from __future__ import annotations

import re

SAMPLE = re.compile(r"^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (.+)$")


def merge_pages(pages: dict[str, str]) -> str:
    """One page in Prometheus' text format of the pages of replicas {id: page}: every sample gets a label `replica`.

    A family's HELP and TYPE lines come once, before the samples of all replicas, as the format demands.
    """
    families: dict[str, list[str]] = {}
    for replica, page in pages.items():
        family: list[str] = []
        for line in page.splitlines():
            if line.startswith("#"):
                word, name = line.split(" ", 3)[1:3]
                if word == "HELP" or name not in families:
                    family = families.setdefault(name, [])
                if line not in family:
                    family.append(line)
            elif sample := SAMPLE.match(line):
                name, labels, value = sample.groups()
                family.append(f'{name}{{{labels + "," if labels else ""}replica="{replica}"}} {value}')
    return "".join(f"{line}\n" for lines in families.values() for line in lines)
