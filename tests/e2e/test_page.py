"""The page at / and the numbers behind its live view. With Chromium and selenium (not in requirements.txt), in a browser too."""

import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from conftest import Server

FILES = {"/": "text/html", "/page.css": "text/css", "/page.js": "text/javascript"}


@pytest.mark.parametrize(("path", "media_type"), FILES.items())
def test_the_page_is_part_of_the_program(server, path, media_type):
    response = httpx.get(server.url + path, timeout=10)
    assert response.status_code == 200
    assert response.headers["Content-Type"] == media_type + "; charset=utf-8"
    assert "frame-ancestors 'none'" in response.headers["Content-Security-Policy"]
    assert len(response.content) > 1000
    assert httpx.head(server.url + path, timeout=10).status_code == 200
    assert httpx.post(server.url + path, json={}, timeout=10).status_code == 405


def test_the_page_does_not_answer_for_other_paths(server):
    response = httpx.get(server.url + "/nothing", timeout=10)
    assert response.status_code == 404
    assert "there is no /nothing here" in response.json()["error"]["message"]


def test_the_page_loads_nothing_from_elsewhere(server):
    for path in FILES:
        text = httpx.get(server.url + path, timeout=10).text
        for line in text.splitlines():
            assert "http://" not in line.replace("http://www.w3.org/2000/svg", ""), line
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


def test_live_shows_who_shares_what(server, questions):
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


@pytest.fixture(scope="module")
def browser():
    webdriver = pytest.importorskip("selenium.webdriver")
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not chromium or not driver:
        pytest.skip("no chromium with chromedriver on this machine")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for argument in ("--headless=new", "--no-sandbox", "--window-size=1200,900"):
        options.add_argument(argument)
    opened = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield opened
    opened.quit()


def test_a_browser_asks_and_sees_the_answer(browser, server, questions):
    browser.get(server.url + "/")
    wait_until(lambda: browser.execute_script("return document.getElementById('model').options.length") >= 2)
    browser.execute_script("document.getElementById('model').value = 'demo:shop'")
    browser.find_element("id", "temperature").send_keys("0")
    browser.find_element("id", "text").send_keys(questions[0]["messages"][-1]["content"] + "\n")
    wait_until(lambda: browser.find_elements("css selector", "#messages .assistant .numbers"))
    assert browser.find_element("css selector", "#messages .assistant .content").text == questions[0]["answer"]
    assert "from the cache" in browser.find_element("css selector", "#messages .assistant .numbers").text
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []


def test_a_browser_sees_the_tree(browser, server):
    browser.get(server.url + "/#live")
    browser.refresh()
    wait_until(lambda: browser.find_elements("css selector", "#tree rect"))
    assert browser.find_elements("css selector", "#numbers dd")
    assert browser.find_element("id", "problem").text == ""
