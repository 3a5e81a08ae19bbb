"""Sentences about the results, with their numbers: the parts finding-NAME of docs/report/README.md."""

import statistics

import selection
import tables_attention
import tables_quantised
import tables_several
from quantities import ARMS, duration, head_kinds, heads_text, library_us, part, ratio, sustained_rates


def joined(words):
    words = list(words)
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def span(values, digits=2):
    low, high = min(values), max(values)
    return f"{low:.{digits}f}" if f"{low:.{digits}f}" == f"{high:.{digits}f}" else f"{low:.{digits}f} to {high:.{digits}f}"


def attention(results):
    results = results.of_table("free")
    sentences = []
    requests, own = results.values("requests")[-1], results.values("own")[0]
    for kind in head_kinds(results):
        which = {"heads": kind[0], "kv_heads": kind[1], "requests": requests, "own": own}
        pairs = [(results.one("relay", shared=shared, **which), results.one("paged", shared=shared, **which), shared)
                 for shared in results.values("shared")]  # fmt: skip
        pairs = [pair for pair in pairs if pair[0] and pair[1]]
        if not pairs:
            continue
        faster = [shared for relay, paged, shared in pairs if paged["median_us"] > 1.02 * relay["median_us"]]
        longest = pairs[-1]
        text = f"With {heads_text(kind)} and {requests} requests, relay is faster than paged"
        text += f" from {min(faster)} shared tokens up" if faster else " nowhere"
        text += f", {longest[1]['median_us'] / longest[0]['median_us']:.1f} times at {longest[2]}."
        shares = [relay["floor_us"] / relay["median_us"] for relay, _, _ in pairs]
        text += f" It reads at {span([100 * share for share in shares], 0)}% of the rate of a plain read"
        unshared = results.one("unshared", shared=longest[2], **which)
        if unshared:
            text += f"; the unshared arm, which reads much more, at {100 * unshared['floor_us'] / unshared['median_us']:.0f}%"
        sentences.append(text + ".")
    if sentences:
        sentences.append("So the distance between the measured and the theoretical speed-up is relay's distance from its "
                         "floor. Where relay is not faster, the planner found that sharing does not pay, and both arms run "
                         "one plan.")  # fmt: skip
    return " ".join(sentences)


PEERS_OF_TABLE = ("FlashAttention-2", "FlashInfer", "cuDNN")


def flash_decoding(results):
    lines, slower, uncut = results.find("split"), [], []
    lines = [one for one in lines if one.raw("references")]
    for one in lines:
        name = f"{one.point['requests']} x {one.point['own']}"
        quoted = one.raw("references")
        for peer in PEERS_OF_TABLE:
            if (library_us(results, peer, one.point) or quoted[peer]) < one["median_us"]:
                slower.append(f"{name} ({peer})")
        unsplit = results.one("unsplit", requests=one.point["requests"], own=one.point["own"])
        if unsplit and unsplit["median_us"] < 0.99 * one["median_us"]:
            uncut.append(name)
    if not lines:
        return ""
    times = [one["median_us"] for one in lines if one.point["requests"] * one.point["own"] == 65536]
    text = f"From 256 short contexts to one of 65,536 tokens the time lies between {min(times):.1f} and {max(times):.1f} us"
    text += ": it hardly depends on how the same bytes are divided, which is what cutting is for. "
    if slower:
        text += f"Baton is slower than one of {joined(PEERS_OF_TABLE)} in {joined(slower)}."
    else:
        text += f"None of {joined(PEERS_OF_TABLE)} is faster in any line."
    if uncut:
        text += f" In {joined(uncut)} cutting costs more than it gains: merging takes longer than waiting for the last block."
    return text


def offline(results):
    sentences = []
    for shared in results.values("shared")[::-1][:1]:
        relay, paged = results.one("relay", shared=shared), results.one("paged", shared=shared)
        if not (relay and paged and relay.get("kv_bytes_saved")):
            return ""
        saved, more = relay["kv_bytes_saved"] / 1e12, paged["elapsed_time"] - relay["elapsed_time"]
        if not results.is_gpu or more <= 0:
            return ""
        asked = paged["kv_bytes_requested"] / 1e12
        sentences.append(
            f"After {shared} tokens relay leaves {saved:,.0f} TB unread of the {asked:,.0f} TB that the paged arm requests. "
            f"The paged arm takes {more:.1f} s longer, so it reads them again at {saved / more:.1f} TB/s: faster than memory "
            "can be read, because the keys and values of a layer's prefix stay in the GPU's L2 cache while a step uses them."
        )
        sentences.append(
            "The rest of the job is the same in both arms: prompts, weights, and the last long answers, which run in small "
            f"batches ({relay['steps']:,.0f} steps for {relay['num_requests']:,.0f} requests). Both bound the ratio from above."
        )
        sentences.append(f"The device is busy {100 * relay['device_busy_share']:.1f}% of the time with relay.")
    return " ".join(sentences)


def mmlu(results):
    unequal = {one.point["shots"]: one.raw("num_unequal_answers") for one in results.measured}
    compared = {one.point["shots"]: one.raw("num_compared_answers") for one in results.measured}
    text = joined(f"{unequal[shots]} of {compared[shots]} with {shots} solved questions" for shots in sorted(unequal))
    text = f"Unequal answers between the arms: {text}. With random weights accuracy is chance"
    if any(unequal.values()):
        text += ", and the letters' probabilities nearly tie, so that another order of summation can change the largest"
    return text + "."


def interactive(results):
    sentences = []
    for shared, levels in sustained_rates(results).items():
        for level, arms in levels.items():
            relay, paged = arms.get("relay", (None, False)), arms.get("paged", (None, False))
            if relay[0] and paged[0] and relay[1] and paged[1]:
                sentences.append(f"At {level:g} s a token after {shared} tokens relay sustains {relay[0] / paged[0]:.2f} times "
                                 "the rate of the paged arm.")  # fmt: skip
            for arm, (rate, is_bounded) in arms.items():
                if arm not in ARMS and rate and is_bounded and relay[0] and relay[1]:
                    version = results.find(arm)[0].rows[0]["commit"]
                    sentences.append(f"The server of {version} sustains {rate:.1f} requests/s there, relay {relay[0] / rate:.2f} "
                                     "times that.")  # fmt: skip
    return " ".join(sentences)


def models(results):
    by_kind = {"multi-head": [], "grouped": []}
    for model in dict.fromkeys(one.point["model"] for one in results.measured):
        kind = "multi-head" if model in ("llama-2-13b", "llama-30b", "phi-2", "llama-2-7b") else "grouped"
        if value := ratio(results, "paged", model=model, shared=results.values("shared")[-1]):
            by_kind[kind].append(value)
    texts = [f"{span(values)} for {kind} attention" for kind, values in by_kind.items() if values]
    if not texts:
        return ""
    text = f"Relay over paged at {results.values('shared')[-1]} tokens: {joined(texts)}"
    if all(map(results.is_marked, results.find("relay", shared=results.values("shared")[-1]))):
        text += " (rows of earlier builds)"
    text += "."
    if all(by_kind.values()):
        text += " With grouped heads a token has a quarter of the bytes: weights and prompts take more of a step, and sharing"
        text += " gains less."
    return text


def beyond(results):
    sentences = []
    for name, key, what in (("groups", "groups", "system prompts in one batch"), ("nested", "levels", "levels"),
                            ("strangers", "share", "share of strangers")):  # fmt: skip
        of_part = part(results, name)
        found = [(one.point[key], ratio(of_part, "paged", **{key: one.point[key]})) for one in of_part.find("relay")]
        found = [(len(value) if key == "levels" else value, quotient) for value, quotient in found if quotient]
        if found:
            found.sort()
            listed = joined(f"{quotient:.2f} at {value:g}" for value, quotient in found)
            sentences.append(f"Relay over paged by {what}: {listed}.")
    few = part(results, "few requests")
    alone = few.one("relay", requests=1), few.one("paged", requests=1)
    if all(alone):
        quotient = alone[0]["median_tokens_per_s"] / alone[1]["median_tokens_per_s"]
        sentences.append(f"With one request there is nothing to share: {quotient:.3f}.")
    return " ".join(sentences)


def prompt_phase(results):
    found = [ratio(results, "paged", shared=one.point["shared"], own=one.point["own"]) for one in results.find("relay")]
    found = [value for value in found if value]
    if not found:
        return ""
    return (f"The rate of relay is {span(found)} times that of the paged arm: in the prompt phase a step has thousands of "
            "rows, its time is matrix multiplication, and what attention reads hardly matters.")  # fmt: skip


def ablations(results):
    baton = results.one("baton")
    if baton is None:
        return ""
    as_is = baton.rate("num_requests")
    others = [(one.rate("num_requests") / as_is, one.arm) for one in results.measured if one is not baton]
    listed = joined(f"{arm} {100 * (quotient - 1):+.0f}%" for quotient, arm in others)
    return f"Throughput against Baton as it is: {listed}."


def attention_peers(results):
    ratios = [
        (min(value[1] for value in (plain, sharing) if value) / relay[1], point)
        for point, relay, _, plain, sharing in tables_attention.beside_libraries(results)
        if relay
    ]
    if not ratios:
        return ""

    def case(value, point):
        heads = f"{point['heads']} / {point['kv_heads']} heads"
        return f"{point['requests']} x ({point['shared']} + {point['own']}) with {heads} ({value:.2f})"

    behind = [case(value, point) for value, point in ratios if value < 1]
    ahead = [value for value, _ in ratios if value >= 1]
    text = f"Relay is the fastest in {len(ahead)} of {len(ratios)} cases, by {span(ahead)}."
    return text + (f" It is slower in {joined(behind)}." if behind else "")


def paged_baseline(results):
    """How far the paged arm is from the fastest kernels of other libraries that read a prefix for each request."""
    sentences = []
    for kind in head_kinds(results):
        of_kind = [
            (paged[1] / plain[1], point["shared"])
            for point, _, paged, plain, _ in tables_attention.beside_libraries(results)
            if paged and plain and (point["heads"], point["kv_heads"], point["head_dim"]) == kind
        ]
        if not of_kind:
            continue
        ratios, shared = [value for value, _ in of_kind], [tokens for _, tokens in of_kind]
        text = f"With {heads_text(kind)} it takes {span(ratios)} times as long as the fastest of them"
        text += f" for prefixes of {span(shared, 0)} tokens"
        if max(ratios) > 1:
            text += ", so ratios of such shapes over paged are flattered by as much of a step as attention takes"
        sentences.append(text + ".")
    return " ".join(sentences)


def kernel_reads(results):
    """Bytes of queries, and sectors read, of requests that share nothing."""
    one = results.one("paged", shared=0)
    if one is None:
        return ""
    requests = one.point["requests"]
    asked, query = one["asked_bytes"] / requests, one["query_bytes"] / requests
    sectors = statistics.median(one.repetitions("l2_read_bytes")) / 32 / requests
    memory = statistics.median(one.repetitions("memory_bytes")) / requests
    return (f"A request's keys and values are {asked / 1e6:.2f} MB, its query and output {query / 1e3:.1f} KB, "
            f"{100 * query / asked:.2f}% of that. The multiprocessors read {sectors:,.0f} sectors of 32 bytes a request from "
            f"the L2, {32 * sectors / (asked + query):.2f} of these bytes, and {memory / 1e6:.2f} MB come from memory: every "
            "sector is used whole, and a query is read once.")  # fmt: skip


def beside_others(results):
    """(number of points in which relay is ahead of every other engine, [sentences of those in which it is not])."""

    wins, losses = 0, []
    for name in dict.fromkeys(one.point["name"] for one in results.measured):
        relay = results.one("relay", name=name)
        others = [(duration(one), one.arm) for one in results.find(name=name) if one.arm not in ARMS and duration(one)]
        if not relay or not others:
            continue
        best = min(others)
        if duration(relay) <= best[0]:
            wins += 1
        else:
            losses.append(f"{name} ({best[1]}: {best[0] / duration(relay):.2f} of Baton's time)")
    return wins, losses


def peers(results):
    wins, losses = beside_others(results)
    if not wins and not losses:
        return ""
    text = f"Relay is ahead of every other engine in {wins} of {wins + len(losses)} points."
    return text + (f" Slower: {joined(losses)}." if losses else "")


def headline(results):
    """How much longer a decode step of 128 requests takes by vLLM, for README."""
    told = []
    for arm, subject in (("vllm", "a decode step of vLLM"), ("vllm-cascade", "With its cascade attention it")):
        ratios = []
        for shape, name in (("8b", "Llama-3-8B"), ("7b", "Llama-2-7B")):
            theirs, ours = (duration(results.one(of, name=f"decode-{shape}-128-2048")) for of in (arm, "relay"))
            if theirs and ours:
                than = "" if ratios else " as long as Baton's"
                ratios.append(f"{theirs / ours:.2f} times{than} for {name}")
        if ratios:
            told.append(f"{subject} takes {joined(ratios)}.")
    return f"For 128 requests after one prompt of 2,048 tokens, {' '.join(told)}" if told else ""


def several(results):
    """Steps over several GPUs beside one, and relay over paged in whole jobs."""
    sentences, by_kind = [], {}
    for point, alone, relay, _, other in tables_several.step_cells(results):
        of = by_kind.setdefault((point["model"], point["ranks"]), ([], [], []))
        of[0].append(str(point["requests"]))
        of[1].append(tables_several.quotient(relay["step_ms"], tables_several.step_ms(alone)))
        of[2].append(tables_several.quotient(tables_several.step_ms(other), relay["step_ms"]))
    for (model, ranks), (requests, shares, others) in by_kind.items():
        if all(shares):
            sentences.append(f"{ranks} GPUs take {joined([f'{share:.2f}' for share in shares])} of one GPU's step of {model} "
                             f"at {joined(requests)} requests.")  # fmt: skip
        if all(others):
            times = joined([f"{value:.2f}" for value in others])
            sentences.append(f"vLLM's step of {model} on {ranks} GPUs takes {times} times as long as relay's at "
                             f"{joined(requests)} requests.")  # fmt: skip
    for model in tables_several.models_of(results):
        for ranks in results.values("ranks"):
            point = {"model": model, "dataset": "sharegpt", "ranks": ranks}
            values = [(shared, ratio(results, "paged", shared=shared, **point)) for shared in results.values("shared")]
            values = [f"{value:.2f} at {shared}" for shared, value in values if value]
            if values:
                on = "one GPU" if ranks == 1 else f"{ranks} GPUs"
                sentences.append(f"Relay over paged, whole jobs of {model} on {on}: {joined(values)} tokens.")
    return " ".join(sentences)


def quantised(results):
    """Steps with weights in 8 and 4 bits beside 16, relay over paged, and vLLM."""
    cells = list(tables_quantised.step_cells(results))
    sentences = []
    for quantization, name in tables_quantised.NAMES.items():
        of = [cell for cell in cells if cell[0]["quantization"] == quantization]
        told = []
        for start, end, pick in (
            ("a step takes ", " of bf16's", lambda cell: tables_quantised.quotient(cell[1], cell[2])),
            ("paged takes ", " times as long as relay", lambda cell: tables_quantised.quotient(cell[3], cell[1])),
            ("vLLM's fastest arm ", " times", lambda cell: tables_quantised.quotient(tables_quantised.fastest(cell[4]), cell[1])),
        ):
            values = [pick(cell) for cell in of]
            if of and all(values) and (quantization != "none" or "bf16" not in end):
                told.append(f"{start}{joined([f'{value:.2f}' for value in values])}{end}")
        if told:
            requests = joined([str(cell[0]["requests"]) for cell in of])
            sentences.append(f"With weights in {name} at {requests} requests, {'; '.join(told)}.")
    return " ".join(sentences)


FINDINGS = {
    "attention": ((1, "attention"), attention),
    "attention-peers": ((1, "attention"), attention_peers),
    "paged-baseline": ((1, "attention"), paged_baseline),
    "flash-decoding": ((2, "flash_decoding"), flash_decoding),
    "offline": ((3, "offline"), offline),
    "mmlu": ((4, "mmlu"), mmlu),
    "interactive": ((5, "interactive"), interactive),
    "models": ((7, "models"), models),
    "ablations": ((8, "ablations"), ablations),
    "kernel-reads": ((1, "attention_counters"), kernel_reads),
    "beyond": ((9, "beyond"), beyond),
    "prompt-phase": ((10, "prompt_phase"), prompt_phase),
    "peers": ((11, "peers"), peers),
    "headline": ((11, "peers"), headline),
    "several": ((12, "several_gpus"), several),
    "quantised": ((13, "quantised"), quantised),
}


def finding(name, folder):
    """The sentences of an experiment; empty where nothing was measured."""
    (number_of, stem), write = FINDINGS[name]
    results = selection.load(folder, number_of, stem)
    return write(results) if results else ""
