"""The page in Chromium: what a person sees, clicks and types. It skips where there is no Chromium or no selenium."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx
import pytest
from browsing import DESKTOP, PHONE, Page, opened_page
from conftest import ROOT, Server

CATALOGUE = ROOT / "models/demo/catalogue.txt"
WEATHER = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}
READERS = [(size, scheme) for size in (DESKTOP, PHONE) for scheme in ("light", "dark")]
every_reader = pytest.mark.parametrize(("size", "scheme"), READERS, ids=[f"{size[0]}-{scheme}" for size, scheme in READERS])
both_sizes = pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    """Return a page of a browser that all tests here share."""
    yield from opened_page()


def call_of(**arguments: str) -> str:
    """Return a call as the saying model writes it."""
    return f"<tool_call>\n{json.dumps({'name': 'get_weather', 'arguments': arguments})}\n</tool_call>"


TEXTS = {
    "call": call_of(city="Oslo"),
    "calls": call_of(city="Oslo") + "\n" + call_of(city="Lima"),
    "cut": call_of(city="Oslo")[:-20],
    "sunny": "It is sunny in Oslo.",
    "lines": "\n".join(f"line {i}" for i in range(60)),
}


@every_reader
def test_the_newest_answer_is_seen_after_ten_exchanges(page, server, questions, size, scheme):
    page.open_playground(server.url, size=size, scheme=scheme)
    for question in questions[:10]:
        assert page.ask(question["messages"][-1]["content"]) == question["answer"]
        newest = page.newest("#messages li")
        assert page.last_line(newest.find_element("css selector", ".content"))["isSeen"]
        line = page.last_line(newest.find_element("css selector", ".numbers"))
        assert line["isSeen"]
        assert line["bottom"] <= page.one("#ask").rect["y"]
        assert page.one("#ask").rect["y"] + page.one("#ask").rect["height"] < size[1] + 1, "the box ends in the window"
    assert len(page.all("#messages .assistant")) == 10
    assert page.script("return document.documentElement.scrollWidth") <= size[0], "nothing is wider than the window"
    assert page.errors() == []


@both_sizes
def test_a_long_answer_is_followed_until_its_reader_scrolls(page, saying, size):
    page.open_playground(saying(TEXTS).url, size=size)
    page.ask("say lines")
    assert page.last_line(page.newest("#messages .content"))["isSeen"]
    page.script("document.getElementById('scroll').scrollTop = 0")
    page.wait(lambda: page.one("#newest").is_displayed())
    page.one("#newest").click()
    page.wait(lambda: not page.one("#newest").is_displayed())
    assert page.last_line(page.newest("#messages .content"))["isSeen"]


@both_sizes
def test_the_first_view_chooses_the_prefix_and_has_three_questions(page, server, questions, size):
    answers = {question["messages"][-1]["content"]: question["answer"] for question in questions}
    page.open_playground(server.url, size=size)
    assert page.one("#model").get_property("value") == "demo:shop"
    assert "demo:shop" in page.one("#starters-of").text
    shown = [button.text for button in page.all("#questions button")]
    assert len(shown) == 3
    for text in shown:
        page.open_playground(server.url, size=size)
        asked = next(button for button in page.all("#questions button") if button.text == text)
        asked.click()
        assert page.answer(0) == answers[text]
        assert "from the cache" in page.newest("#messages .numbers").text
        assert not page.one("#starters").is_displayed()
    page.one("#reset").click()
    page.wait(lambda: page.one("#starters").is_displayed())
    assert page.errors() == []


def test_a_model_without_a_prefix_has_questions_too(page, saying):
    page.open_playground(saying(TEXTS).url)
    assert page.one("#model").get_property("value") == "said"
    assert len(page.all("#questions button")) == 3
    assert "No registered prompt" in page.one("#starters-why").text


def test_settings_fold_away_on_a_phone(page, server):
    page.open_playground(server.url, size=PHONE)
    assert not page.one("#temperature").is_displayed()
    summary = page.one("#fold > summary")
    assert "demo:shop" in summary.text
    summary.click()
    page.wait(lambda: page.one("#temperature").is_displayed())
    assert page.one("#text").rect["y"] < PHONE[1], "the input box stays in the window"
    page.open_playground(server.url, size=DESKTOP)
    assert page.one("#temperature").is_displayed()


def test_the_header_names_model_and_version_and_links_to_docs_and_metrics(page, server):
    page.open_playground(server.url)
    version = httpx.get(server.url + "/version", timeout=10).json()["version"]
    page.wait(lambda: f"demo · Baton {version}" in page.one("#about").text)
    links = {link.text: link.get_attribute("href") for link in page.all("header nav a")}
    assert links["Docs"].endswith("#docs/api")
    assert "baton:" in httpx.get(links["Metrics"], timeout=10).text


@pytest.mark.parametrize(
    ("field", "wrong", "sentence", "right"),
    [
        ("temperature", "hot", "A number from 0 to 100", "0.5"),
        ("temperature", "-1", "A number from 0 to 100", "0"),
        ("temperature", "0,7", "A number from 0 to 100", "1e-1"),
        ("top_p", "0", "above 0 and at most 1", "1"),
        ("top_p", "1.5", "above 0 and at most 1", ".5"),
        ("max_tokens", "0", "A whole number from 1 to 4,096", "64"),
        ("max_tokens", "12.5", "A whole number from 1 to 4,096", "+64"),
        ("max_tokens", "4097", "A whole number from 1 to 4,096", "1"),
        ("seed", "x", "A whole number", "-3"),
        ("seed", "9007199254740993", "at most 15 digits", "7"),
        ("tools", "{", "This is no JSON", json.dumps([WEATHER])),
        ("tools", '{"a": 1}', "A list of tools", "[]"),
        ("tools", '[{"type": "function"}]', "needs a name", json.dumps([WEATHER])),
        ("tools", '[{"name": "f"}]', 'needs "type": "function"', json.dumps([WEATHER])),
        ("schema", "[]", "A JSON schema is an object", '{"type": "integer"}'),
        ("schema", '{"type": "integer"', "This is no JSON", '{"type": "integer"}'),
    ],
)
def test_a_wrong_value_is_named_beside_its_field(page, server, field, wrong, sentence, right):
    page.open_playground(server.url, size=PHONE)  # where the settings are folded away
    page.script("for (const each of document.querySelectorAll('details')) each.open = true")
    page.fill(f"#{field}", wrong)
    page.script("for (const each of document.querySelectorAll('details')) each.open = false")
    page.one("#text").send_keys("What does the Kalsaren T35 cost?\n")
    fault = page.one(f"#{field}-fault")
    assert sentence in fault.text
    assert page.one(f"#{field}").get_attribute("aria-invalid") == "true"
    assert page.one(f"#{field}").get_attribute("aria-describedby") == f"{field}-fault"
    assert page.chrome.switch_to.active_element.get_attribute("id") == field
    assert page.all("#messages li") == []
    assert "a setting is wrong" in page.one("#wanted").text
    assert page.one("#text").get_property("value") == "What does the Kalsaren T35 cost?", "the question is kept"
    page.fill(f"#{field}", right)
    assert fault.text == ""
    assert page.one(f"#{field}").get_attribute("aria-invalid") is None
    page.one("#send").click()
    page.answer(0)


def test_what_the_server_refuses_is_named_beside_its_field(page, server):
    page.open_playground(server.url)
    page.all("#settings summary")[1].click()
    page.fill("#schema", '{"type": "strin"}')
    page.one("#text").send_keys("What does the Kalsaren T35 cost?\n")
    page.wait(lambda: page.one("#schema-fault").text)
    assert "strin" in page.one("#schema-fault").text
    assert "strin" in page.one("#messages .failed").text
    page.fill("#schema", '{"type": "string"}')
    page.one("#messages .failed button").click()
    assert page.answer(0).startswith('"')
    assert page.all("#messages .failed") == []


def ask_with_tools(page: Page, server: Server, text: str) -> None:
    page.open_playground(server.url)
    page.all("#settings summary")[0].click()
    page.script("document.getElementById('tools').value = arguments[0]", json.dumps([WEATHER]))
    page.watch_requests()
    page.one("#text").send_keys(text + "\n")


def test_a_called_tool_is_answered_and_the_conversation_continues(page, saying):
    ask_with_tools(page, saying(TEXTS), "say call")
    page.wait(lambda: page.all("#messages .result textarea"))
    call = page.newest("#messages .call")
    assert call.text == 'get_weather {"city": "Oslo"}'
    box = page.one("#messages .result textarea")
    assert page.chrome.switch_to.active_element == box
    assert box.accessible_name == "Result of get_weather"
    assert box.rect["y"] > call.rect["y"]
    box.send_keys("say sunny\n")
    assert page.answer(1) == TEXTS["sunny"]
    assert "say sunny" in page.one("#messages .result pre").text
    messages = page.sent()[-1]["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "tool"]
    assert messages[2]["tool_call_id"] == messages[1]["tool_calls"][0]["id"]
    assert messages[2]["content"] == "say sunny"
    assert page.ask("say lines").endswith("line 59")
    assert page.errors() == []


def test_each_of_several_calls_has_a_box(page, saying):
    ask_with_tools(page, saying(TEXTS), "say calls")
    page.wait(lambda: len(page.all("#messages .result textarea")) == 2)
    first, second = page.all("#messages .result textarea")
    first.send_keys("cold\n")
    assert page.chrome.switch_to.active_element == second
    second.send_keys("say sunny")
    page.one("#messages .assistant button.first").click()
    assert page.answer(1) == TEXTS["sunny"]
    messages = page.sent()[-1]["messages"]
    assert [message["content"] for message in messages[2:]] == ["cold", "say sunny"]
    assert [message["tool_call_id"] for message in messages[2:]] == [call["id"] for call in messages[1]["tool_calls"]]


def test_a_question_waits_for_the_result_of_a_call(page, saying):
    ask_with_tools(page, saying(TEXTS), "say call")
    page.wait(lambda: page.all("#messages .result textarea"))
    page.one("#text").send_keys("say lines\n")
    assert "waits for its result" in page.one("#wanted").text
    assert page.chrome.switch_to.active_element == page.one("#messages .result textarea")
    assert len(page.sent()) == 1


def test_a_cut_call_asks_for_no_result(page, saying):
    ask_with_tools(page, saying(TEXTS), "say cut")
    page.wait(lambda: page.all("#messages .assistant:not([aria-busy])"))
    assert page.all("#messages .result textarea") == []
    assert page.ask("say sunny") == TEXTS["sunny"]
    assert "tool_calls" not in page.sent()[-1]["messages"][1]


@pytest.mark.parametrize("way", ["the clipboard", "the old command"])
def test_an_answer_is_copied(page, saying, way):
    server = saying(TEXTS)
    page.open_playground(server.url)
    permissions = {"origin": server.url, "permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]}
    page.chrome.execute_cdp_cmd("Browser.grantPermissions", permissions)
    read = "navigator.clipboard.readText().then(arguments[0], (error) => arguments[0](String(error)))"
    page.ask("say sunny")
    page.ask("say lines")
    if way == "the old command":
        page.script("navigator.clipboard.writeText = () => Promise.reject(new Error('no'))")
    for place, text in enumerate((TEXTS["sunny"], TEXTS["lines"])):
        button = page.all("#messages .assistant .foot button")[place]
        button.click()
        page.wait(lambda button=button: button.text == "Copied")
        assert page.chrome.execute_async_script(read) == text
        assert page.one("#announced").get_property("textContent") == "Copied."
        assert page.chrome.switch_to.active_element == button


def test_a_stopped_server_is_named_and_the_page_continues_when_it_is_back(page, tmp_path):
    flags = ("--prefix", f"shop={CATALOGUE}")
    first = Server(tmp_path / "first", *flags)
    page.open_playground(first.url)
    assert "$41.56" in page.ask("What does the Kalsaren T35 cost?")
    assert page.one("#state-word").get_property("textContent") == "connected"
    assert first.stop() == 0
    page.wait(lambda: page.one("#stopped").is_displayed())
    assert f"The server at 127.0.0.1:{first.port} cannot be reached" in page.one("#stopped").text
    assert page.one("#state-word").get_property("textContent") == "stopped"
    page.one("#text").send_keys("Is the Pelrinar K3 in stock?\n")
    page.wait(lambda: page.all("#messages .failed"))
    assert "cannot be reached" in page.one("#messages .failed").text
    page.chrome.execute_script("location.hash = 'live'")
    page.wait(lambda: page.one("#live").is_displayed())
    second = Server(tmp_path / "second", *flags, port=first.port)
    try:
        page.wait(lambda: not page.one("#stopped").is_displayed())
        page.wait(lambda: page.all("#numbers dd"))
        page.chrome.execute_script("location.hash = 'chat'")
        page.wait(lambda: page.one("#chat").is_displayed())
        page.one("#messages .failed button").click()
        assert page.answer(1) == "The Pelrinar K3 is in stock."
        assert page.all("#messages .failed") == []
    finally:
        assert second.stop() == 0


def test_a_key_is_asked_for_and_taken(page, tmp_path):
    server = Server(tmp_path / "log", "--api-key", "secret")
    try:
        page.open(server.url + "/")
        page.wait(lambda: "asks for an API key" in page.one("#problem").text)
        page.fill("#key", "wrong\n")
        page.wait(lambda: "does not know this API key" in page.one("#problem").text)
        page.fill("#key", "secret\n")
        page.wait(lambda: page.all("#questions button"))
        assert not page.one("#problem").is_displayed()
        page.script("sessionStorage.clear()")
    finally:
        assert server.stop() == 0


@every_reader
def test_the_live_view_has_even_rows_axes_and_a_tree(page, server, size, scheme):
    page.open(server.url + "/#live", size=size, scheme=scheme)
    page.wait(lambda: len(page.all("#numbers dd")) == 8 and page.all("#tree rect") and page.all("#rate path"))
    cards = [card.rect for card in page.all("#numbers > div")]
    rows = [[card for card in cards if card["y"] == y] for y in sorted({card["y"] for card in cards})]
    assert {len(row) for row in rows} == {4 if size == DESKTOP else 2}
    assert len({(card["width"], card["height"]) for card in cards}) == 1
    labels = [text.text for text in page.all("#rate text")]
    assert {"0", "2 min ago", "60 s", "now"} <= set(labels)
    assert sum(label.replace(",", "").isdigit() for label in labels) >= 3
    assert page.one("#rate").get_attribute("aria-label").startswith("Generated tokens a second in the last two minutes: now ")
    assert page.script("return document.documentElement.scrollWidth") <= size[0]
    assert not page.one("#problem").is_displayed()
    assert page.errors() == []


@both_sizes
def test_documents_are_read_on_the_page(page, server, size):
    page.open(server.url + "/#docs/api", size=size)
    page.wait(lambda: page.all("#document table"))
    names = [link.get_attribute("href").split("/")[-1] for link in page.all("#documents a")]
    assert len(names) > 10
    for name in names:
        page.script("location.hash = arguments[0]", f"docs/{name}")
        title = (ROOT / f"docs/{name}.md").read_text().splitlines()[0].removeprefix("# ").replace("`", "")
        page.wait(lambda title=title: page.all("#document h2") and page.one("#document h2").text == title)
        text = page.script("for (const code of document.querySelectorAll('#document :is(code, pre)')) code.remove(); "
                           "return document.getElementById('document').textContent")  # fmt: skip
        for mark in ("](", "**", "| --", "|---", "`"):
            assert mark not in text, name
        for link in page.all("#document a"):
            target = link.get_attribute("href").split("#docs/")[1].split("/")[0]
            assert target in names
    page.script("location.hash = 'docs/api/tools'")
    page.wait(lambda: page.all("#at-tools") and -2 < page.one("#at-tools").rect["y"] - page.one("#document").rect["y"] < 200)
    assert page.script("return document.documentElement.scrollWidth") <= size[0]
    assert page.errors() == []


@both_sizes
@pytest.mark.parametrize("view", ["chat", "live", "docs/api"])
def test_everything_that_takes_input_has_a_name(page, server, size, view):
    page.open(f"{server.url}/#{view}", size=size)
    page.wait(lambda: page.one("#about").text)
    page.script("for (const each of document.querySelectorAll('details')) each.open = true")
    for field in page.all("input, textarea, select, button, a, [role=region], [role=img]"):
        if field.is_displayed():
            assert field.accessible_name, field.get_attribute("outerHTML")
    assert len(page.all("main")) == 1
    ids = page.script("return [...document.querySelectorAll('[id]')].map((each) => each.id)")
    assert len(ids) == len(set(ids))
