"""Quantities that figures and tables derive from the measurements, and what theory says of them."""

import math
import statistics

PUBLISHED_NAMES = {"relay": "RelayAttention", "paged": "vLLM-PS", "unshared": "vLLM"}
MODEL_NAMES = {"llama-2-7b": "Llama-2-7B", "llama-2-13b": "Llama-2-13B", "llama-30b": "Llama-30B", "phi-2": "Phi-2",
               "mistral-7b": "Mistral-7B"}  # fmt: skip
WEIGHT_BYTES = {"codellama-34b": 2 * 33.74e9, "demo": 9.4e6}  # bf16
LEVELS_S = (0.5, 0.1, 0.05)  # latencies a token: the paper's, and stricter ones
ARMS = ("relay", "paged", "unshared")


def eq_10(shared, own, requests):
    """Speed-up of relayed over unshared attention by the paper's Eq. 10: separate kernels, multi-head, counted in
    tokens."""
    return (shared + own + 2) / (shared / requests + own + 7)


def bytes_read(arm, point, element_bytes=2):
    """(distinct bytes from memory, bytes read again) of one layer's attention: keys and values, queries, outputs, the
    new token.

    A relayed prefix is read once; a paged one once from memory and again for each further request; unshared ones are
    all distinct."""
    heads, kv_heads, head_dim = point["heads"], point["kv_heads"], point["head_dim"]
    token = 2 * kv_heads * head_dim * element_bytes
    shared, own, requests = point["shared"], point["own"], point["requests"]
    other = requests * (2 * heads * head_dim * element_bytes + token)
    if arm == "unshared":
        return token * requests * (shared + own) + other, 0
    again = token * (requests - 1) * shared if arm == "paged" else 0
    return token * (shared + requests * own) + other, again


L2_BYTES, L2_BYTES_PER_US = 0.7 * 63e6, 9.6e6  # an H200's, measured (docs/workloads.md)


def model_us(arm, point, bytes_per_us):
    """Time by bytes alone. What is read again comes from the L2 while the prefix stays in it."""
    distinct, again = bytes_read(arm, point)
    token = 2 * point["kv_heads"] * point["head_dim"] * 2
    fits = point["shared"] * token <= L2_BYTES
    return distinct / bytes_per_us + again / (max(L2_BYTES_PER_US, bytes_per_us) if fits else bytes_per_us)


def sustained_rate(measured, limit_s):
    """The largest rate whose mean latency a token stays within the limit, between two rates by linear
    interpolation; and whether a larger measured rate exceeded it. (None, False) without any."""
    pairs = sorted((one.point["rate"], one["latency_per_token_s"]) for one in measured)
    within = None
    for index, (rate, latency) in enumerate(pairs):
        if latency > limit_s:
            if index == 0:
                return None, True
            low, below = pairs[index - 1]
            share = (math.log(limit_s) - math.log(below)) / (math.log(latency) - math.log(below))
            return low + (rate - low) * share, True
        within = rate
    return within, False


def head_kinds(results):
    """The distinct head counts of Baton's cases, multi-head first."""
    arms = (*ARMS, "split")
    ours = (one.point for one in results.measured if one.arm in arms and "heads" in one.point)
    kinds = {(point["heads"], point["kv_heads"], point["head_dim"]) for point in ours}
    return sorted(kinds, key=lambda kind: (kind[0] != kind[1], -kind[0]))


def heads_text(kind):
    return f"{kind[0]} query heads, {kind[1]} KV heads, d = {kind[2]}"


def decode_bound(one, weights_bytes, bytes_per_us):
    """Tokens a second if a step only read the weights and the context."""
    n_steps = one.point["new"] - 1
    return 1e6 / ((weights_bytes + one["kv_bytes_requested"] / max(n_steps, 1)) / bytes_per_us)


def part(results, name):
    return results.of([row for row in results.rows if row["point"].get("part") == name])


def of_steps(results):
    """The rows of decode steps."""
    return results.of([row for row in results.rows if "new" in row["point"] or row["job"].startswith("decode")])


def ratio(results, over, count="num_requests", **point):
    """Median rate of relay over that of another arm at a point; None without both."""
    relay, other = results.one("relay", **point), results.one(over, **point)
    return relay.rate(count) / other.rate(count) if relay and other else None


def all_arms(results):
    """Baton's arms, then those of other programs, by name."""
    return [*ARMS, *sorted({one.arm for one in results.measured} - set(ARMS))]


def sustained_rates(results):
    """{shared: {level: {arm: (rate, whether a higher rate was too much)}}}"""
    arms = all_arms(results)
    return {
        shared: {
            level: {arm: sustained_rate(found, level) for arm in arms if (found := results.find(arm, shared=shared))}
            for level in LEVELS_S
        }
        for shared in results.values("shared")
    }


PLAIN_PEERS = ("FlashInfer decode", "FlashInfer decode, tensor cores", "FlashInfer XQA", "FlashInfer BatchAttention",
               "FlashAttention-3")  # fmt: skip
SHARING_PEERS = ("FlashInfer cascade", "FlashInfer fa2 + decode", "FlashInfer fa3 + decode",
                 "FlashInfer fa3 + decode, tensor cores", "FlashAttention-3 cascade", "torch relay")  # fmt: skip
CASE = ("heads", "kv_heads", "requests", "own", "shared")


def case_of(point):
    return {key: point[key] for key in CASE}


def fastest(results, arms, point):
    """The fastest of these arms at a case of attention: (name, microseconds), or None."""
    found = [(one["median_us"], one.arm) for arm in arms for one in results.find(arm, **case_of(point))]
    return min(found)[::-1] if found else None


def library_us(results, name, point):
    """The time of another library at a case, of its fastest variant (NAME, or NAME and more); None without any. Variants
    that do not cut contexts are left out."""
    arms = {one.arm for one in results.measured if one.arm.startswith(name) and "unsplit" not in one.arm}
    found = fastest(results, sorted(arms), point)
    return found[1] if found else None


def duration(one):
    """How long an engine took: the median seconds of a whole job, or milliseconds of a decode step. None if unknown."""
    times = one.repetitions("elapsed_times") if one else None
    if times:
        return statistics.median(times)
    return one.get("step_ms") if one else None


def peer_names(results):
    """The names of experiment 11's points: whole jobs, then decode steps, each by the words of a name, numbers by size."""

    def place(name):
        words = [(word.isdigit(), int(word) if word.isdigit() else 0, word) for word in name.split("-")]
        return name.startswith("decode"), words

    return sorted({one.point["name"] for one in results.measured}, key=place)


def repeated(one):
    """The repetitions of what duration() says: seconds of whole jobs, or tokens a second of decode steps."""
    return (one.repetitions("elapsed_times") or one.repetitions("tokens_per_s")) if one else []


def paged_over_plain(results, shared, heads=52):
    """The time of Baton's paged attention over that of the fastest plain decode of another library, 32 requests, own
    context 128; None without both."""
    paged = results.one("paged", heads=heads, requests=32, own=128, shared=shared)
    plain = fastest(results, PLAIN_PEERS, paged.point) if paged else None
    return paged["median_us"] / plain[1] if plain else None


def published_ratio(published, experiment, over, **values):
    """The ratio of the relay arm's requests a second to those of another arm in the authors' figures; None without
    both."""
    both = [published.one(experiment, "requests_per_second", arm=arm, **values) for arm in ("relay", over)]
    return both[0] / both[1] if all(both) else None
