"""Tables of one model over several GPUs (experiment 12), and of the same jobs on one GPU of that host."""

import selection
from markdown_parts import about, markdown, number, percent, with_notes
from quantities import ARMS, MODEL_NAMES, PUBLISHED_NAMES, of_steps, published_ratio, ratio
from selection import spread


def models_of(results):
    return list(dict.fromkeys(one.point["model"] for one in results.measured))


def step_cells(results):
    """Of each decode point over several GPUs: the point, relay on one GPU and on all, paged on all, vLLM."""
    for model in models_of(results):
        for ranks in results.values("ranks"):
            for requests in results.values("requests"):
                point = {"model": model, "requests": requests, "new": 64}
                relay = results.one("relay", ranks=ranks, **point)
                if ranks == 1 or not relay:
                    continue
                paged, other = (results.one(arm, ranks=ranks, **point) for arm in ("paged", f"vllm-tp{ranks}"))
                yield point | {"ranks": ranks}, results.one("relay", ranks=1, **point), relay, paged, other


def step_ms(one):
    return one.get("step_ms") if one else None


def quotient(above, below):
    return above / below if above and below else None


def steps(results, _published):
    """Decode steps: several GPUs beside one, and beside vLLM; a table of each kind of GPU."""
    return "\n\n".join(filter(None, (steps_on(of_gpu) for of_gpu in results.each_gpu())))


def steps_on(results):
    rows = []
    for point, alone, relay, paged, other in step_cells(results):
        spreads = [spread(one.repetitions("tokens_per_s")) or 0 for one in (alone, relay, paged, other) if one]
        rows.append([point["model"], str(point["requests"]), str(point["ranks"]), number(step_ms(alone)), number(step_ms(relay)),
                     number(quotient(step_ms(relay), step_ms(alone))), number(step_ms(paged)), number(step_ms(other)),
                     number(quotient(step_ms(other), step_ms(relay))), percent(max(spreads))])  # fmt: skip
    header = ["shape", "requests", "GPUs", "relay on one, ms a step", "relay on all", "ratio", "paged on all", "vLLM on all",
              "vLLM / relay", "spread"]  # fmt: skip
    return with_notes(markdown(header, rows), of_steps(results)) if rows else ""


def paper(published, model, shared):
    """The paper's ratios, of which GPU and over what."""
    them = []
    for over in ("paged", "unshared"):
        for gpu in ("2 x A100", "A40"):
            value = published_ratio(published, 7, over, model=MODEL_NAMES.get(model, model), shared=shared, gpu=gpu)
            them += [f"{value:.2f} ({gpu}, over {PUBLISHED_NAMES[over]})"] if value else []
    return "; ".join(them) or "-"


def job_cells(results, published, shown, **point):
    """The cells of a whole job in its arms, after those of `shown`; None if it was not measured."""
    found = [results.one(arm, **point) for arm in ARMS]
    if not any(found):
        return None
    rates = [number(one and one.rate("num_requests")) + (" (cut)" if one and one.raw("cut") else "") for one in found]
    requests = str(next(one for one in found if one).point["requests"])
    return [point["model"], requests, *shown, *rates, number(ratio(results, "paged", **point)),
            number(ratio(results, "unshared", **point)), paper(published, point["model"], point["shared"])]  # fmt: skip


JOB_HEADER = ["relay, requests/s", "paged", "unshared", "relay / paged", "relay / unshared", "the paper"]


def jobs(results, published):
    """Whole jobs with ShareGPT's lengths, the paper's table 4; a table of each kind of GPU that ran them over several."""
    return "\n\n".join(filter(None, (jobs_on(of_gpu, published) for of_gpu in results.each_gpu())))


def jobs_on(results, published):
    rows = []
    if max(results.values("ranks"), default=1) == 1:
        return ""
    for model in models_of(results):
        for ranks in results.values("ranks"):
            for shared in results.values("shared"):
                point = {"model": model, "dataset": "sharegpt", "shared": shared, "ranks": ranks}
                rows.append(job_cells(results, published, [str(ranks), str(shared)], **point))
    rows = [row for row in rows if row]
    table = markdown(["shape", "requests", "GPUs", "system prompt", *JOB_HEADER], rows)
    return f"{table}\n\n{results.about()}. {results.older()}".rstrip() if rows else ""


def jobs_on_an_h100(folder, published):
    """Experiments 3 and 7 on an H100, where an H200's rows are shown otherwise."""
    rows, last = [], None
    for number_of, stem in ((3, "offline"), (7, "models")):
        results = selection.load(folder, number_of, stem, "H100")
        last = results or last
        for model in models_of(results):
            for shared in results.values("shared"):
                rows.append(job_cells(results, published, [str(shared)], model=model, dataset="sharegpt", shared=shared))
    rows = [row for row in rows if row]
    if not rows:
        return "Not measured yet."
    return f"{markdown(['shape', 'requests', 'system prompt', *JOB_HEADER], rows)}\n\n{about(last)}"
