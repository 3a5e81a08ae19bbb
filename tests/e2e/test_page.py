"""The files of the page at / and the numbers of its live view. test_page_in_browser.py uses the page."""

import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from conftest import ROOT, Server

WEB = ROOT / "src/web"
FILES = {"/": "text/html", "/page/page.css": "text/css"} | {f"/page/{path.name}": "text/javascript" for path in WEB.glob("*.js")}
DOCUMENTS = re.findall(r'href="#docs/([\w-]+)">', (WEB / "index.html").read_text())


@pytest.mark.parametrize(("path", "media_type"), FILES.items())
def test_the_page_is_part_of_the_program(server, path, media_type):
    response = httpx.get(server.url + path, timeout=10)
    assert response.status_code == 200
    assert response.headers["Content-Type"] == media_type + "; charset=utf-8"
    assert "frame-ancestors 'none'" in response.headers["Content-Security-Policy"]
    assert "script-src 'self'; style-src 'self'; connect-src 'self'" in response.headers["Content-Security-Policy"]
    assert len(response.content) > 500
    assert httpx.head(server.url + path, timeout=10).status_code == 200
    assert httpx.post(server.url + path, json={}, timeout=10).status_code == 405


@pytest.mark.parametrize("name", sorted(set(DOCUMENTS)))
def test_documents_are_part_of_the_program(server, name):
    response = httpx.get(f"{server.url}/page/{name}.md", timeout=10)
    assert response.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert response.content == (ROOT / f"docs/{name}.md").read_bytes()


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("/nothing", "there is no /nothing here"),
        ("/page/nothing.js", "the page has no file /page/nothing.js"),
        ("/page/index.html", "the page has no file /page/index.html"),
        ("/page", "there is no /page here"),
        ("/page.js", "there is no /page.js here"),
    ],
)
def test_the_page_does_not_answer_for_other_paths(server, path, sentence):
    response = httpx.get(server.url + path, timeout=10)
    assert response.status_code == 404
    assert sentence in response.json()["error"]["message"]


def test_the_page_loads_nothing_from_elsewhere(server):
    for path in FILES:
        text = httpx.get(server.url + path, timeout=10).text
        for line in text.splitlines():
            assert "http://" not in line.replace("http://www.w3.org/2000/svg", ""), line
            assert "url(" not in line.replace("url(data:", ""), line
            assert "https://" not in line, line


def live(server, **options):
    response = httpx.get(server.url + "/live", timeout=10, **options)
    assert response.status_code == 200, response.text
    return response.json()


def wait_until(holds, seconds=60):
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.02)


def test_live_shows_which_requests_share_what(server, questions):
    """Several answers behind one registered prompt: its node is used by all of them."""
    is_seen = threading.Event()

    def ask(question):
        body = {"model": "demo:shop", "messages": question["messages"][-1:], "max_tokens": 512, "ignore_eos": True}
        with httpx.Client(timeout=120) as client:
            assert client.post(server.url + "/v1/chat/completions", json=body).status_code == 200
            while not is_seen.is_set():  # answers of a fast machine may end before the others begin
                assert client.post(server.url + "/v1/chat/completions", json=body).status_code == 200

    nodes = []

    def is_shared():
        nodes[:] = live(server)["tree"]["nodes"]
        return any(node["n_sequences"] >= 2 for node in nodes)

    with ThreadPoolExecutor(8) as askers:
        asked = [askers.submit(ask, question) for question in questions[:8]]
        try:
            wait_until(is_shared)
        finally:
            is_seen.set()
        for one in asked:
            one.result()
    root = nodes[0]
    assert root["parent"] == -1
    assert root["n_sequences"] >= 2
    assert root["is_pinned"]
    assert root["n_tokens"] > 1000
    assert all(set(node) == {"parent", "n_tokens", "n_sequences", "is_pinned", "hash"} for node in nodes)
    after = live(server)
    assert after["generation_tokens"] >= 8 * 512
    assert after["kv_bytes_saved"] > 0


def test_live_needs_the_right_of_an_admin(tmp_path):
    server = Server(tmp_path / "log", "--api-key", "user", "--admin-api-key", "admin")
    try:
        assert httpx.get(server.url + "/", timeout=10).status_code == 200
        assert httpx.get(server.url + "/live", timeout=10).status_code == 401
        assert httpx.get(server.url + "/live", headers={"Authorization": "Bearer user"}, timeout=10).status_code in (401, 403)
        assert "tree" in live(server, headers={"Authorization": "Bearer admin"})
    finally:
        assert server.stop() == 0
