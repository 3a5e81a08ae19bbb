"""A page in headless Chromium, as its reader meets it. Without Chromium, chromedriver or selenium a test that asks for it skips."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from selenium.webdriver import Chrome
    from selenium.webdriver.remote.webelement import WebElement

DESKTOP = (1280, 720)
PHONE = (390, 844)
# The rectangle of the last line of text in an element, and whether a reader sees that line: nothing lies over its ends and middle.
LAST_LINE = """
const range = document.createRange();
range.selectNodeContents(arguments[0]);
const box = [...range.getClientRects()].filter((one) => one.width > 1).at(-1);
const y = (box.top + box.bottom) / 2;
const isSeen = [box.left + 1, (box.left + box.right) / 2, box.right - 1].every(
  (x) => arguments[0].contains(document.elementFromPoint(x, y)));
return {top: box.top, bottom: box.bottom, isSeen};
"""
WATCH_REQUESTS = """
window.sent = [];
const before = window.fetch;
window.fetch = (path, options) => {
  if (options?.body) window.sent.push(options.body);
  return before(path, options);
};
"""


class Page:
    """One tab of a browser."""

    def __init__(self, chrome: Chrome) -> None:
        """Take over an opened browser."""
        self.chrome = chrome

    def open(self, url: str, size: tuple[int, int] = DESKTOP, scheme: str = "light") -> None:
        """Load a URL again, in a window of this size, for a reader who prefers this colour scheme."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.chrome.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        shape = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": size == PHONE}
        self.chrome.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", shape)
        self.chrome.get("about:blank")
        self.chrome.get(url)
        self.chrome.get_log("browser")

    def open_playground(self, url: str, **reader: Any) -> None:
        """Load the playground, and wait until it knows the server's models."""
        self.open(url + "/", **reader)
        self.wait(lambda: self.script("return document.getElementById('model').options.length") > 0)
        self.wait(lambda: self.all("#questions button"))

    def script(self, text: str, *arguments: Any) -> Any:
        """Return what a script returns."""
        return self.chrome.execute_script(text, *arguments)

    def all(self, selector: str) -> list[WebElement]:
        """Return all elements of a CSS selector."""
        return self.chrome.find_elements("css selector", selector)

    def one(self, selector: str) -> WebElement:
        """Return the first element of a CSS selector."""
        return self.chrome.find_element("css selector", selector)

    def newest(self, selector: str) -> WebElement:
        """Return the last element of a CSS selector."""
        return self.all(selector)[-1]

    def wait(self, holds: Callable[[], Any], seconds: float = 60) -> None:
        """Wait until something holds. Elements that are replaced in between are looked up again."""
        from selenium.common.exceptions import StaleElementReferenceException

        deadline = time.monotonic() + seconds
        while True:
            try:
                if holds():
                    return
            except StaleElementReferenceException:
                pass
            seen = self.one("body").text
            assert time.monotonic() < deadline, f"it did not come to that; the page says:\n{seen}"
            time.sleep(0.05)

    def fill(self, selector: str, text: str) -> None:
        """Replace the text of a field, as typing does."""
        field = self.one(selector)
        field.clear()
        field.send_keys(text)

    def ask(self, text: str) -> str:
        """Ask a question, and return the content of its whole answer."""
        count = len(self.all("#messages .assistant .numbers"))
        self.one("#text").send_keys(text + "\n")
        return self.answer(count)

    def answer(self, n_before: int) -> str:
        """Return the content of the newest answer when one more than before has ended."""
        done = "#messages .assistant:not([aria-busy]) .numbers"
        self.wait(lambda: len(self.all(done)) > n_before)
        return self.newest("#messages .assistant .content").text

    def last_line(self, element: WebElement) -> dict:
        """Return where the last line of an element is, and whether it is seen."""
        return self.script(LAST_LINE, element)

    def watch_requests(self) -> None:
        """Keep what the page sends from now on, for `sent`."""
        self.script(WATCH_REQUESTS)

    def sent(self) -> list[dict]:
        """Return the bodies of requests since `watch_requests`."""
        return [json.loads(body) for body in self.script("return window.sent")]

    def errors(self) -> list[dict]:
        """Return what the browser's console says is wrong since the last look."""
        return [entry for entry in self.chrome.get_log("browser") if entry["level"] == "SEVERE"]


def opened_page() -> Iterator[Page]:
    """Yield a page of a browser, for a fixture."""
    webdriver = pytest.importorskip("selenium.webdriver")
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not chromium or not driver:
        pytest.skip("no chromium with chromedriver on this machine")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1280,900"):
        options.add_argument(argument)
    chrome = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield Page(chrome)
    chrome.quit()
