"""Tables of weights in 8 and 4 bits beside 16 (experiment 13)."""

from markdown_parts import markdown, number, percent, with_notes
from quantities import of_steps, ratio
from selection import spread

NAMES = {"none": "bf16", "fp8": "fp8", "fp8-block": "fp8, 128 x 128", "int8": "int8", "int4": "int4", "awq": "AWQ",
         "mxfp4": "MXFP4", "nvfp4": "NVFP4"}  # fmt: skip
PEERS = {"vllm": "vLLM", "vllm-marlin": "vLLM by Marlin"}


def step_cells(results):
    """Of each form of weights and number of requests: the point, relay with them and with 16 bits, paged, [vLLM's arms]."""
    for requests in results.values("requests"):
        for quantization in NAMES:
            point = {"requests": requests, "quantization": quantization, "new": 64}
            relay = results.one("relay", **point)
            if relay:
                dense = results.one("relay", **point | {"quantization": "none"})
                others = [results.one(arm, **point) for arm in PEERS]
                yield point, relay, dense, results.one("paged", **point), others


def step_ms(one):
    return one["step_ms"] if one else None


def quotient(above, below):
    return step_ms(above) / step_ms(below) if above and below else None


def fastest(others):
    """The fastest of vLLM's arms, or None."""
    return min((other for other in others if other), key=step_ms, default=None)


def steps(results, _published):
    """Decode steps behind a shared prompt by the form of the weights, and beside vLLM: a table of each GPU."""
    return "\n\n".join(filter(None, (steps_on(of_gpu) for of_gpu in results.each_gpu())))


def steps_on(results):
    rows = []
    for point, relay, dense, paged, others in step_cells(results):
        spreads = [spread(one.repetitions("tokens_per_s")) or 0 for one in (relay, paged, *others) if one]
        rows.append([str(point["requests"]), NAMES[point["quantization"]], number(step_ms(relay)), number(quotient(relay, dense)),
                     number(step_ms(paged)), number(quotient(paged, relay)), *(number(step_ms(other)) for other in others),
                     number(quotient(fastest(others), relay)), percent(max(spreads))])  # fmt: skip
    header = ["requests", "weights", "relay, ms a step", "of bf16", "paged", "paged / relay", *PEERS.values(), "best vLLM / relay",
              "spread"]  # fmt: skip
    return with_notes(markdown(header, rows), of_steps(results)) if rows else ""


def jobs(results, _published):
    """Experiment 3's jobs by the form of the weights."""
    rows = []
    for shared in results.values("shared"):
        for quantization, name in NAMES.items():
            point = {"dataset": "sharegpt", "shared": shared, "quantization": quantization}
            relay, paged = (results.one(arm, **point) for arm in ("relay", "paged"))
            dense = results.one("relay", **point | {"quantization": "none"})
            if relay:
                rows.append([str(shared), name, number(relay.rate("num_requests")),
                             number(dense and relay.rate("num_requests") / dense.rate("num_requests")),
                             number(paged and paged.rate("num_requests")), number(ratio(results, "paged", **point))])  # fmt: skip
    header = ["system prompt", "weights", "relay, requests/s", "over bf16", "paged", "relay / paged"]
    return markdown(header, rows) if rows else ""
