"""What the clients of soak.py ask in chats: the three dialects, tools, structured output and conversations that are stored."""

from __future__ import annotations

import contextlib
import http.client
import json
import random
import re
import time

import jsonschema

N_SCHEMAS = 200  # more than the server's cache of compiled grammars keeps
COLOURS = ("red", "blue", "green", "white", "black")
CITIES = ("Paris", "Rome", "Oslo")
CUT = {"length", "max_tokens", "incomplete"}  # the names of an answer that max_tokens ended


def schema_of(rng: random.Random) -> dict:
    """One of N_SCHEMAS schemas, whose answers end."""
    number = rng.randrange(N_SCHEMAS)
    properties: dict = {
        "id": {"type": "string", "pattern": f"^[A-Z]{{2}}-[0-9]{{{1 + number % 6}}}$"},
        "count": {"type": "integer", "minimum": 1, "maximum": 12 + number},
        "colour": {"enum": list(COLOURS[: 2 + number % 4])},
        "sizes": {"type": "array", "items": {"type": "boolean"}, "maxItems": 3},
    }
    names = list(properties)[number % 3 :]
    return {"type": "object", "properties": {n: properties[n] for n in names}, "required": names, "additionalProperties": False}


def tools_of(rng: random.Random) -> dict[str, dict]:
    """Some tools: the schema of the arguments of each."""
    tools = {
        "plan_trip": {"city": {"enum": list(CITIES)}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
        "switch_light": {"on": {"type": "boolean"}},
        "mix": {"colours": {"type": "array", "items": {"enum": list(COLOURS)}, "minItems": 1, "maxItems": 3}},
    }
    names = rng.sample(sorted(tools), k=rng.randrange(1, 4))
    closed = {"type": "object", "additionalProperties": False}
    return {name: closed | {"properties": tools[name], "required": list(tools[name])} for name in names}


def events_of(text: bytes) -> list[dict]:
    """The JSON of each frame of a stream."""
    lines = re.findall(rb"^data: (.*)$", text, re.MULTILINE)
    return [json.loads(line) for line in lines if line != b"[DONE]"]


def arguments_of(text: str) -> object:
    """The arguments of a call; None where they are no JSON."""
    with contextlib.suppress(ValueError):
        return json.loads(text)
    return None


class Dialects:
    """A part of soak_clients.Clients: `post`, `refusal`, `count` and `ending` are there."""

    def dialect_kinds(self) -> list[tuple]:
        """What a client may do in a chat, and how often."""
        return [
            (self.structured_chat, 5),
            (self.structured_completion, 4),
            (self.chat_tools, 4),
            (self.messages, 5),
            (self.messages_tools, 3),
            (self.responses, 5),
            (self.responses_tools, 3),
            (self.conversation, 3),
            (self.leave_chat, 5),
        ]

    def say(self, rng: random.Random) -> list[dict]:
        """A short chat."""
        return [{"role": "user", "content": f"Say something of {rng.choice(COLOURS)} mugs in {rng.choice(CITIES)}."}]

    def ask(self, connection: http.client.HTTPConnection, path: str, body: dict) -> tuple[str, bytes]:
        """The outcome of what was refused, or nothing; and the answer."""
        sent = time.monotonic()
        response = self.post(connection, path, body)
        text = response.read()
        return ("" if response.status == 200 else self.refusal(response.status, text, sent)), text

    def verdict(self, what: str, reason: str, problems: list[str], answer: object) -> str:
        """What an answer came to that ended for `reason`; a server that ends cuts answers."""
        if self.ending.kind == "abort" and (problems or reason not in CUT | {"stop", "end_turn", "completed", "tool_calls"}):
            return "told that the server ends"
        if problems:
            return f"WRONG: {what}: {'; '.join(problems)[:200]} in {json.dumps(answer)[:300]}"
        return f"{what}, cut by its length" if reason in CUT else what

    def judged(self, text: str, schema: dict) -> list[str]:
        """What is wrong with a text of a schema."""
        try:
            jsonschema.validate(json.loads(text), schema)
        except (ValueError, jsonschema.ValidationError) as error:
            return [f"not of the schema ({str(error).splitlines()[0]})"]
        return []

    def judged_calls(self, calls: list[tuple[str, object]], tools: dict[str, dict], is_cut: bool) -> list[str]:
        """What is wrong with calls: names and arguments."""
        problems = [] if calls or is_cut else ["no call"]
        for name, arguments in calls:
            if name not in tools:
                problems.append(f"a call of {name}")
            elif not is_cut:
                problems += self.judged(json.dumps(arguments), tools[name])
        return problems

    def structured_chat(self, connection: http.client.HTTPConnection, rng: random.Random) -> str:
        """A chat whose answer has a schema, in one piece or streamed."""
        schema = schema_of(rng)
        named = {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": schema}}
        body: dict = {"messages": self.say(rng), "max_tokens": rng.choice((20, 300)), "temperature": 1, "response_format": named}
        body["stream"] = rng.random() < 0.5
        refused, text = self.ask(connection, "/v1/chat/completions", body)
        if refused:
            return refused
        if not body["stream"]:
            choice = json.loads(text)["choices"][0]
            content, reason = choice["message"]["content"] or "", choice["finish_reason"]
        else:
            choices = [choice for event in events_of(text) for choice in event.get("choices", [])]
            content = "".join(choice["delta"].get("content") or "" for choice in choices)
            reason = next((choice["finish_reason"] for choice in reversed(choices) if choice["finish_reason"]), "none")
        problems = self.judged(content, schema) if reason == "stop" else [] if reason == "length" else [f"ended by {reason}"]
        return self.verdict("answered by a schema", reason, problems, content)

    def structured_completion(self, connection: http.client.HTTPConnection, rng: random.Random) -> str:
        """A completion held to a regular expression, a choice or a grammar."""
        kind, value, pattern = rng.choice(
            (
                ("regex", "(red|blue) mugs?, [0-9]{1,3} (dollars|cents)", "(red|blue) mugs?, [0-9]{1,3} (dollars|cents)"),
                ("choice", list(COLOURS), "|".join(COLOURS)),
                ("grammar", 'root ::= "a" root | "b"', "a*b"),
            )
        )
        body = {"prompt": "A mug: ", "max_tokens": 100, "temperature": 1, "structured_outputs": {kind: value}}
        body["n"] = rng.choice((1, 1, 3))
        refused, text = self.ask(connection, "/v1/completions", body)
        if refused:
            return refused
        choices = json.loads(text)["choices"]
        problems = [
            f"{choice['text']!r} ended by {choice['finish_reason']}"
            for choice in choices
            if choice["finish_reason"] != "length"
            and not (choice["finish_reason"] == "stop" and re.fullmatch(pattern, choice["text"]))
        ]
        return self.verdict(f"answered by a {kind}", "stop", problems, choices)

    def chat_tools(self, connection: http.client.HTTPConnection, rng: random.Random) -> str:
        """A chat that must call a tool."""
        tools = tools_of(rng)
        body: dict = {"messages": self.say(rng), "max_tokens": rng.choice((10, 300)), "temperature": 1}
        body["tools"] = [{"type": "function", "function": {"name": n, "parameters": p, "strict": True}} for n, p in tools.items()]
        body["tool_choice"] = rng.choice(("required", {"type": "function", "function": {"name": sorted(tools)[0]}}))
        body["stream"] = rng.random() < 0.5
        refused, text = self.ask(connection, "/v1/chat/completions", body)
        if refused:
            return refused
        calls: dict[int, list[str]] = {}
        if not body["stream"]:
            choice = json.loads(text)["choices"][0]
            reason = choice["finish_reason"]
            for i, call in enumerate(choice["message"].get("tool_calls") or []):
                calls[i] = [call["function"]["name"], call["function"]["arguments"]]
        else:
            choices = [choice for event in events_of(text) for choice in event.get("choices", [])]
            reason = next((choice["finish_reason"] for choice in reversed(choices) if choice["finish_reason"]), "none")
            for choice in choices:
                for piece in choice["delta"].get("tool_calls") or []:
                    call = calls.setdefault(piece["index"], ["", ""])
                    call[0] += piece["function"].get("name") or ""
                    call[1] += piece["function"].get("arguments") or ""
        made = [(name, arguments_of(arguments)) for name, arguments in calls.values()]
        problems = self.judged_calls(made, tools, reason == "length")
        if reason not in ("tool_calls", "stop", "length"):
            problems.append(f"ended by {reason}")
        return self.verdict("called a tool", reason, problems, made)

    def message_body(self, rng: random.Random) -> dict:
        """A request of Anthropic's dialect."""
        body: dict = {"model": "demo", "messages": self.say(rng), "max_tokens": rng.choice((5, 60)), "stream": rng.random() < 0.5}
        if rng.random() < 0.5:
            body["system"] = [{"type": "text", "text": f"Be {rng.choice(COLOURS)}."}]
        if rng.random() < 0.3:
            body["prefix"] = "shop"
        return body

    def message_of(self, body: dict, text: bytes) -> tuple[str, list[dict]]:
        """The stop reason and the blocks of an answer, in one piece or streamed."""
        if not body["stream"]:
            answer = json.loads(text)
            return answer["stop_reason"], answer["content"]
        blocks: list[dict] = []
        reason = "none"
        for event in events_of(text):
            if event["type"] == "content_block_start":
                blocks.append(event["content_block"] | {"pieces": ""})
            elif event["type"] == "content_block_delta":
                blocks[-1]["pieces"] += event["delta"].get("partial_json", "")
            elif event["type"] == "content_block_stop" and blocks[-1]["type"] == "tool_use":
                blocks[-1]["input"] = arguments_of(blocks[-1]["pieces"])
            elif event["type"] == "message_delta":
                reason = event["delta"]["stop_reason"]
            elif event["type"] == "error":
                reason = "error"
        return reason, blocks

    def messages(self, connection: http.client.HTTPConnection, rng: random.Random) -> str:
        """A message, or the count of its tokens."""
        body = self.message_body(rng)
        if rng.random() < 0.2:
            counted = {name: body[name] for name in ("model", "messages")}
            refused, text = self.ask(connection, "/v1/messages/count_tokens", counted)
            return refused or ("counted tokens" if json.loads(text)["input_tokens"] > 0 else f"WRONG: {text[:200]!r}")
        refused, text = self.ask(connection, "/v1/messages", body)
        if refused:
            return refused
        reason, blocks = self.message_of(body, text)
        problems = [] if reason in ("end_turn", "max_tokens") else [f"ended by {reason}"]
        return self.verdict("answered a message", reason, problems, blocks)

    def messages_tools(self, connection: http.client.HTTPConnection, rng: random.Random) -> str:
        """A message that must use a tool."""
        tools = tools_of(rng)
        body = self.message_body(rng) | {"max_tokens": rng.choice((10, 300)), "tool_choice": {"type": "any"}}
        body["tools"] = [{"name": name, "input_schema": schema} for name, schema in tools.items()]
        body.pop("prefix", None)  # after which they find no room
        refused, text = self.ask(connection, "/v1/messages", body)
        if refused:
            return refused
        reason, blocks = self.message_of(body, text)
        made = [(block["name"], block["input"]) for block in blocks if block["type"] == "tool_use"]
        problems = self.judged_calls(made, tools, reason == "max_tokens")
        if reason not in ("tool_use", "max_tokens"):
            problems.append(f"ended by {reason}")
        return self.verdict("used a tool in a message", reason, problems, blocks)

    def response_of(self, body: dict, text: bytes) -> dict:
        """The response, in one piece or at the end of a stream."""
        if not body.get("stream"):
            return json.loads(text)
        last = events_of(text)[-1]
        return last.get("response", {"status": last["type"], "output": []})

    def responses(self, connection: http.client.HTTPConnection, rng: random.Random) -> str:
        """A response, which is not stored."""
        body: dict = {"model": "demo", "input": self.say(rng), "max_output_tokens": rng.choice((5, 60)), "store": False}
        body["stream"] = rng.random() < 0.5
        schema = schema_of(rng)
        if is_structured := rng.random() < 0.4:
            body["text"] = {"format": {"type": "json_schema", "name": "answer", "strict": True, "schema": schema}}
            body["max_output_tokens"] = 300
        refused, text = self.ask(connection, "/v1/responses", body)
        if refused:
            return refused
        answer = self.response_of(body, text)
        problems = [] if answer["status"] in ("completed", "incomplete") else [f"ended as {answer['status']}"]
        parts = [part for item in answer["output"] for part in item.get("content", [])]
        said = "".join(part["text"] for part in parts if part["type"] == "output_text")
        if is_structured and answer["status"] == "completed":
            problems += self.judged(said, schema)
        return self.verdict("answered a response", answer["status"], problems, answer["output"])

    def responses_tools(self, connection: http.client.HTTPConnection, rng: random.Random) -> str:
        """A response that must call a function."""
        tools = tools_of(rng)
        body: dict = {"model": "demo", "input": self.say(rng), "max_output_tokens": rng.choice((10, 300)), "store": False}
        body["tools"] = [{"type": "function", "name": n, "parameters": p, "strict": True} for n, p in tools.items()]
        body |= {"tool_choice": "required", "stream": rng.random() < 0.5}
        refused, text = self.ask(connection, "/v1/responses", body)
        if refused:
            return refused
        answer = self.response_of(body, text)
        made = [(i["name"], arguments_of(i["arguments"])) for i in answer["output"] if i["type"] == "function_call"]
        problems = self.judged_calls(made, tools, answer["status"] == "incomplete")
        if answer["status"] not in ("completed", "incomplete"):
            problems.append(f"ended as {answer['status']}")
        return self.verdict("called a function in a response", answer["status"], problems, answer["output"])

    def conversation(self, connection: http.client.HTTPConnection, rng: random.Random) -> str:
        """Responses that continue with one another, are shown, and removed."""
        previous = None
        ids = []
        for _ in range(rng.randrange(1, 4)):
            body: dict = {"model": "demo", "input": self.say(rng), "max_output_tokens": 20}
            body |= {"previous_response_id": previous} if previous else {}
            refused, text = self.ask(connection, "/v1/responses", body)
            if refused:
                self.forget(connection, ids)
                return refused
            previous = json.loads(text)["id"]
            ids.append(previous)
        connection.request("GET", f"/v1/responses/{previous}/input_items?order=asc", headers={})
        response = connection.getresponse()
        shown = response.read()
        gone = self.forget(connection, ids)
        if response.status != 200 or gone != [200] * len(ids):
            told = self.ending.kind and {response.status, *gone} <= {200, 503}
            return "told that the server ends" if told else f"WRONG: a conversation got {response.status} {gone} {shown[:200]!r}"
        n_inputs = sum(item["type"] == "message" and item["role"] == "user" for item in json.loads(shown)["data"])
        return "talked" if n_inputs == len(ids) else f"WRONG: {n_inputs} inputs of {len(ids)}: {shown[:300]!r}"

    def forget(self, connection: http.client.HTTPConnection, ids: list[str]) -> list[int]:
        """Remove stored responses; the statuses."""
        statuses = []
        for response_id in ids:
            connection.request("DELETE", f"/v1/responses/{response_id}", headers={})
            response = connection.getresponse()
            response.read()
            statuses.append(response.status)
        return statuses

    def leave_chat(self, connection: http.client.HTTPConnection, rng: random.Random) -> str:
        """Leave in the middle of a chat with a schema or tools, in any dialect."""
        path, body = rng.choice(
            (
                ("/v1/messages", self.message_body(rng) | {"max_tokens": 300}),
                ("/v1/responses", {"input": self.say(rng), "store": False, "stream": True}),
                ("/v1/chat/completions", {"messages": self.say(rng), "max_tokens": 300, "stream": True}),
            )
        )
        schema = schema_of(rng)
        if path == "/v1/chat/completions":
            body["response_format"] = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
        connection.request("POST", path, json.dumps(body | {"model": "demo"}), {"Content-Type": "application/json"})
        connection.sock.settimeout(rng.random() * 0.5)
        with contextlib.suppress(TimeoutError):
            connection.getresponse().read(rng.randrange(1, 2000))
        connection.close()
        return "left a chat"
