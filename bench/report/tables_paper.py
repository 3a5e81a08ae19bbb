"""The RelayAttention paper's tables 3 and 4 with Baton's figures beside."""

from markdown_parts import OLDER, markdown, marked, number
from quantities import ARMS, MODEL_NAMES, PUBLISHED_NAMES

NAMES = [PUBLISHED_NAMES[arm] for arm in ARMS[::-1]]  # the paper's order


def quotient(above, below):
    return above / below if above and below else None


def mmlu(results, published):
    """Table 3: seconds for all questions, and how much longer the other two take than RelayAttention."""
    rows = []
    for shots in sorted({row["shots"] for row in published.find(4)}):
        found = {arm: results.one(arm, shots=shots) for arm in ARMS}
        ours = {arm: one and 1 / one.rate("num_requests") for arm, one in found.items()}
        for gpu in dict.fromkeys(row["gpu"] for row in published.find(4, shots=shots)):
            them = {arm: published.one(4, "seconds", shots=shots, gpu=gpu, arm=arm) for arm in ARMS}
            ratios = [number(quotient(times[arm], times[ARMS[0]])) for arm in ARMS[1:] for times in (them, ours)]
            rows.append([str(shots), gpu, *(number(them[arm], 0) for arm in ARMS[::-1]), *ratios])
    header = ["solved questions", "the paper's GPU", *(f"{name}, s" for name in NAMES), "vLLM-PS / RelayAttention",
              "Baton: paged / relay", "vLLM / RelayAttention", "Baton: unshared / relay"]  # fmt: skip
    return markdown(header, rows)


def models(results, published):
    """Table 4: requests a second with ShareGPT's lengths, each model on the paper's GPU and here."""
    rows = []
    for model, name in MODEL_NAMES.items():
        for shared in (512, 1024):
            gpus = [gpu for gpu in ("A40", "2 x A100") if published.find(7, model=name, shared=shared, gpu=gpu)]
            found = [results.one(arm, model=model, shared=shared) for arm in ARMS[::-1]]
            if not gpus:
                continue
            them = [published.one(7, "requests_per_second", model=name, shared=shared, gpu=gpus[0], arm=arm) for arm in ARMS[::-1]]
            ours = [one and one.rate("num_requests") for one in found]
            ratios = [number(quotient(rates[2], rates[index])) for index in (1, 0) for rates in (them, ours)]
            rows.append([name, marked(str(shared), results, *found), gpus[0], *map(number, them), *map(number, ours), *ratios])
    here = results.device.removeprefix("NVIDIA ")
    header = ["model", "system prompt", "the paper's GPU", *NAMES, *(f"Baton, {here}: {arm}" for arm in ARMS[::-1]),
              "RelayAttention / vLLM-PS", "relay / paged", "RelayAttention / vLLM", "relay / unshared"]  # fmt: skip
    table = markdown(header, rows)
    return f"{table}\n\n{results.older(OLDER)}" if OLDER in table else table
