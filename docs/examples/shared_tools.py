"""64 agents with one list of tools: what Baton reads once for all of them.

    baton serve demo --port 8000
    python3 docs/examples/shared_tools.py http://127.0.0.1:8000

Needs Python 3.11 and nothing else. Each agent asks a question of its own after the same tools, and `baton_stats` of its
answer says how many tokens of its context were read together with other agents.
"""

from __future__ import annotations

import argparse
import json
import urllib.request
from concurrent.futures import ThreadPoolExecutor

SERVICES = [
    "orders",
    "invoices",
    "customers",
    "parcels",
    "returns",
    "stock",
    "prices",
    "suppliers",
    "tickets",
    "payments",
]
ACTIONS = ["find", "create", "update"]


def tool(action: str, service: str) -> dict:
    """Return one function of a service."""
    properties = {
        "id": {"type": "string", "description": f"number in {service}"},
        "limit": {"type": "integer", "description": "most rows"},
        "status": {"type": "string", "enum": ["open", "closed", "any"]},
    }
    parameters = {"type": "object", "properties": properties, "required": ["id"]}
    return {
        "type": "function",
        "function": {
            "name": f"{action}_{service}",
            "description": f"To {action} {service}.",
            "parameters": parameters,
        },
    }


def post(url: str, body: dict) -> dict:
    """Send a JSON body, and return the JSON of the answer."""
    request = urllib.request.Request(
        url, json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=600) as answer:
        return json.load(answer)


def tools_within(url: str, n_tokens: int) -> tuple[list[dict], int]:
    """Return as many tools as fit `n_tokens` of a prompt, and the tokens of a prompt that has them."""
    tools: list[dict] = []
    count = 0
    for service in SERVICES:
        for action in ACTIONS:
            more = [*tools, tool(action, service)]
            asked = {"messages": [{"role": "user", "content": ""}], "tools": more}
            n_more = post(f"{url}/tokenize", asked)["count"]
            if n_more > n_tokens:
                return tools, count
            tools, count = more, n_more
    return tools, count


def main() -> None:
    """Ask, and print the sums of what the answers say."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("url", help="of a server")
    parser.add_argument("--agents", type=int, default=64)
    parser.add_argument(
        "--tool-tokens",
        type=int,
        default=4000,
        help="of the list of tools; less where the context is shorter",
    )
    parser.add_argument("--answer-tokens", type=int, default=48)
    options = parser.parse_args()
    with urllib.request.urlopen(f"{options.url}/v1/models", timeout=60) as answer:
        context = json.load(answer)["data"][0]["max_model_len"]
    own = options.answer_tokens + 64  # an answer and a question
    tools, n_shared = tools_within(options.url, min(options.tool_tokens, context - own))

    def ask(agent: int) -> dict:
        body = {
            "messages": [
                {
                    "role": "user",
                    "content": f"Which orders of customer {agent} are open?",
                }
            ],
            "tools": tools,
            "max_tokens": options.answer_tokens,
            "ignore_eos": True,
            "temperature": 0,
            "baton_stats": True,
        }
        return post(f"{options.url}/v1/chat/completions", body)

    ask(-1)  # computes the shared prompt
    with ThreadPoolExecutor(options.agents) as pool:
        answers = list(pool.map(ask, range(options.agents)))
    stats = [answer["baton"] for answer in answers]
    requested = sum(one["kv_bytes_requested"] for one in stats)
    saved = sum(one["kv_bytes_saved"] for one in stats)
    print(f"{len(tools)} tools, {n_shared} tokens; {len(answers)} agents")
    print(f"prompt tokens from the cache: {sum(one['cached_tokens'] for one in stats)}")
    print(
        f"tokens read together with other agents: {sum(one['relayed_tokens'] for one in stats)}"
    )
    print(
        f"agents in the largest shared read: {max(one['largest_group'] for one in stats)}"
    )
    print(
        f"KV bytes read: {requested:,}; saved by reading them once for all: {saved:,}"
    )


if __name__ == "__main__":
    main()
