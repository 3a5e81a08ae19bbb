"""Tables of attention alone: experiments 1 and 2, and PAT's trees."""

import statistics

from markdown_parts import markdown, number, percent, with_notes
from quantities import (
    ARMS,
    PLAIN_PEERS,
    SHARING_PEERS,
    WEIGHT_BYTES,
    case_of,
    decode_bound,
    eq_10,
    fastest,
    head_kinds,
    heads_text,
    library_us,
    model_us,
)
from selection import spread


def attention(results, published):
    results, blocks, shown = results.of_table("free"), [], []
    for kind in head_kinds(results):
        requests, own = results.values("requests")[-1], results.values("own")[0]
        rows = []
        for shared in results.values("shared"):
            which = {"heads": kind[0], "kv_heads": kind[1], "requests": requests, "own": own, "shared": shared}
            found = {arm: results.one(arm, **which) for arm in ARMS}
            if not found["relay"]:
                continue
            relay = found["relay"]
            shown.append(which)
            rate = relay["read_bytes_per_us"]
            us = {arm: one and one["median_us"] for arm, one in found.items()}
            model = model_us("unshared", relay.point, rate) / model_us("relay", relay.point, rate)
            published_us = [
                published.one(1, "us", requests=requests, own=own, shared=shared, arm=arm) if kind[0] == 52 else None
                for arm in ("unshared", "relay")
            ]
            rows.append([
                str(shared), *(number(us[arm], 1) for arm in ARMS), number(relay["floor_us"], 1),
                percent(relay["floor_us"] / us["relay"]),
                number(us["paged"] / us["relay"]) if us["paged"] else "-",
                number(us["unshared"] / us["relay"]) if us["unshared"] else "-",
                number(eq_10(shared, own, requests)), number(model),
                number(published_us[0] / published_us[1]) if all(published_us) else "-",
                percent(relay.get("spread")),
            ])  # fmt: skip
        header = ["shared", "relay, us", "paged, us", "unshared, us", "floor, us", "floor / relay", "paged / relay",
                  "unshared / relay", "Eq. 10", "byte model", "the paper, A100", "spread"]  # fmt: skip
        blocks.append(f"{heads_text(kind)}; {requests} requests, own context {own}:\n\n{markdown(header, rows)}")
    return with_notes("\n\n".join(blocks), results.of([row for row in results.rows if case_of(row["point"]) in shown]))


def beside_libraries(results):
    """Cases that other libraries ran too: (point, relay, paged, the fastest that reads the prefix for each request, the
    fastest that shares), each (name, us) or None."""
    seen = set()
    for one in results.measured:
        case = tuple(case_of(one.point).values())
        plain, sharing = fastest(results, PLAIN_PEERS, one.point), fastest(results, SHARING_PEERS, one.point)
        if case in seen or not (plain or sharing):
            continue
        seen.add(case)
        relay, paged = (fastest(results, (arm,), one.point) for arm in ("relay", "paged"))
        yield one.point, relay, paged, plain, sharing


def attention_peers(results, _published):
    """Cases that other libraries ran too: the fastest that reads the prefix for each request, the fastest that shares."""
    rows, shown = [], []
    for point, relay, paged, plain, sharing in beside_libraries(results):
        shown.append(case_of(point))
        best = min(value[1] for value in (plain, sharing) if value)
        heads = f"{point['heads']} / {point['kv_heads']}"
        rows.append([heads, *(str(point[key]) for key in ("requests", "own", "shared")),
                     number(relay and relay[1], 1), number(paged and paged[1], 1),
                     *(f"{value[1]:,.1f} ({value[0]})" if value else "-" for value in (plain, sharing)),
                     number(paged[1] / plain[1] if paged and plain else None),
                     number(best / relay[1] if relay else None)])  # fmt: skip
    header = ["heads", "requests", "own", "shared", "relay, us", "paged, us", "fastest plain, us", "fastest sharing, us",
              "paged / fastest plain", "fastest other / relay"]  # fmt: skip
    shown = results.of([row for row in results.rows if case_of(row["point"]) in shown])
    return with_notes(markdown(header, rows), shown) if rows else ""


def counters(results, _published):
    """What the multiprocessors read from the L2 and what came from memory, by Nsight Compute."""
    rows = []
    for one in results.measured:
        point = one.point
        l2, memory = (statistics.median(one.repetitions(key)) for key in ("l2_read_bytes", "memory_bytes"))
        us = statistics.median(one.repetitions("kernel_ns")) / 1e3
        case = f"{point['requests']} x ({point['shared']} + {point['own']})"
        rows.append([case, f"{point['heads']} / {point['kv_heads']}", one.arm,
                     number(one["asked_bytes"] / 1e6, 1), number(l2 / one["asked_bytes"]), number(memory / 1e6, 1),
                     number(memory / one["distinct_bytes"]), number(one["query_bytes"] / point["requests"] / 1e3, 1),
                     number(us, 1), number(memory / us / 1e6)])  # fmt: skip
    header = ["requests x (shared + own)", "heads", "arm", "asked by the plan, MB", "L2 reads / asked", "from memory, MB",
              "memory / distinct", "query and output KB a request", "kernel, us", "memory, TB/s"]  # fmt: skip
    return with_notes(markdown(header, rows), results)


def trees(results, _published):
    """PAT's trees: relay, and in brackets paged over relay and the share of the floor, a column for each head shape."""
    kinds = head_kinds(results)
    rows = []
    for tree in dict.fromkeys(one.point["tree"] for one in results.measured):
        cells = []
        for kind in kinds:
            which = {"tree": tree, "heads": kind[0], "kv_heads": kind[1]}
            relay, paged = results.one("relay", **which), results.one("paged", **which)
            if not relay:
                cells.append(number(paged and paged["median_us"], 1))
                continue
            us = relay["median_us"]
            cells.append(f"{us:,.1f} ({paged['median_us'] / us:.2f}; {100 * relay['floor_us'] / us:.0f}%)")
        rows.append([tree, *cells])
    header = ["tree", *(f"{kind[0]} / {kind[1]} heads, us" for kind in kinds)]
    return with_notes(markdown(header, rows), results)


def starred(value):
    return "-" if value is None else number(value, 1) + "*"


def flash_decoding(results, _published):
    rows = []
    for one in sorted(results.find("split"), key=lambda one: -one.point["requests"]):
        case = {"requests": one.point["requests"], "own": one.point["own"]}
        unsplit = results.one("unsplit", **case)
        quoted = one.raw("references") or {}
        names = ("FlashAttention-2", "FlashAttention-2 unsplit", "eager", "FlashInfer", "cuDNN", "Flash-Decoding, A100")
        unsplit_flash = results.one("FlashAttention-2 unsplit", **case)
        here = {name: library_us(results, name, one.point) for name in names}
        here["FlashAttention-2 unsplit"] = unsplit_flash and unsplit_flash["median_us"]
        times = [number(here[name], 1) if here[name] else starred(quoted.get(name)) for name in names]
        rows.append([f"{case['requests']} x {case['own']}", number(one["median_us"], 1), percent(one.get("spread")),
                     number(unsplit and unsplit["median_us"], 1), number(one.get("read_us", one["floor_us"]), 1),
                     *times])  # fmt: skip
    header = ["requests x context", "Baton, us", "spread", "unsplit, us", "read, us", "FlashAttention-2",
              "FlashAttention-2 unsplit", "eager", "FlashInfer", "cuDNN", "Flash-Decoding, A100"]  # fmt: skip
    note = "*: quoted. The A100's are the Flash-Decoding authors'; others with a star were measured on an H200 on 2026-11-20."
    return with_notes(f"{markdown(header, rows)}\n\n{note}", results)


def context_curve(results, _published):
    found = sorted((one for one in results.measured if "context" in one.point), key=lambda one: one.point["context"])
    read = max((one["read_bytes_per_us"] for one in results.find("split")), default=None)
    rows = []
    for one in found:
        weights = WEIGHT_BYTES.get(one.point["model"])
        bound = decode_bound(one, weights, read) if weights and read and results.is_gpu else None
        speed = one["median_tokens_per_s"]
        rows.append([str(one.point["context"]), number(speed, 1), percent(spread(one.repetitions("tokens_per_s"))),
                     number(bound, 1), percent(speed / bound if bound else None)])  # fmt: skip
    header = ["context", "tokens/s", "spread", "bound, tokens/s", "share of the bound"]
    return markdown(header, rows) if rows else ""
