"""What a user does on the page, in a real Chromium: `python browser_pages.py ADDRESS CHROMIUM` prints JSON.

It runs in the environment that `make browser-env` creates. The server has the models of conftest.py, and two
peers: one with the same store, and one that is down.
"""

from __future__ import annotations

import json
import re
import sys
import traceback
from collections.abc import Callable

from playwright.sync_api import Locator, Page, Route, expect, sync_playwright

TEXT = "a stream "
FLAGS = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
EXPECTED = ("400 (Bad", "503 (Service", "net::ERR_CONNECTION_REFUSED", "net::ERR_FAILED")
"""What Chromium reports for a refused request, and for a server that is down."""
EXPECTED_OF = {
    "a_peer_that_fails": ("429 (Too",),
    "answers_that_are_lost": ("404 (Not", "409 (Conf"),
    "a_token_comes_first": ("401 (Unauth",),
}
"""The same in single scenarios."""
N = 240
SCENARIOS: dict[str, Callable[[Page], None]] = {}


def scenario(function: Callable[[Page], None]) -> Callable[[Page], None]:
    SCENARIOS[function.__name__] = function
    return function


def typed(page: Page, text: str = TEXT, tokens: int = 0) -> None:
    """Types with the keyboard only; the field has the focus, and its example is selected."""
    expect(page.locator("#text")).to_be_focused()
    page.keyboard.type(text)
    expect(page.locator(".token")).to_have_count(tokens or len(text))
    expect(page.locator("#where")).to_have_text(str(tokens or len(text)))


def ink(canvas: Locator) -> int:
    """The number of different colours."""
    script = """one => new Set(new Uint32Array(one.getContext("2d").getImageData(
        0, 0, one.width, one.height).data.buffer)).size"""
    return int(canvas.evaluate(script))


def sessions(page: Page) -> list[str]:
    answer = page.request.get(f"{page.url}v1/sessions").json()
    return [one["id"] for one in answer["sessions"]]


@scenario
def an_example_is_there(page: Page) -> None:
    """Before anything is typed, with its surprisal, memory and a unit's decay, and without a session; one click
    clears it."""
    read = page.locator("#text").input_value()
    assert len(read) > 20 and read == page.evaluate("getSelection().toString()")
    expect(page.locator(".token")).to_have_count(len(read))
    expect(page.locator("#where")).to_have_text(str(len(read)))
    expect(page.locator("#next li")).to_have_count(10)
    assert float(page.locator("#mean").inner_text()) > 0
    for canvas in (*page.locator(".layer canvas").all(), page.locator("#decay")):
        assert ink(canvas) > 8
    page.locator("#position").focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#text")).to_have_value(read[0])
    page.get_by_role("button", name="Clear").click()
    expect(page.locator("#text")).to_be_focused()
    expect(page.locator(".token")).to_have_count(0)
    left_over(page, page.url.rstrip("/"))  # of the scenario before
    assert sessions(page) == []


@scenario
def an_example_goes_on(page: Page) -> None:
    """From its end or from within, as if it had been typed."""
    read = page.locator("#text").input_value()
    fork = page.get_by_role("article").first
    page.get_by_label("Tokens", exact=True).fill(str(N))
    page.get_by_label("Tokens per second").fill("100000")
    fork.get_by_role("button", name="Continue").click()
    assert finished(page, fork) == undisturbed(page, "lm", read)
    page.locator(".token").nth(4).click()
    page.locator("#text").press("End")
    page.keyboard.type("as")
    expect(page.locator(".token")).to_have_count(7)
    bits = page.locator(".token i").all_text_contents()
    page.get_by_role("button", name="Clear").click()
    typed(page, f"{read[:5]}as")
    assert page.locator(".token i").all_text_contents() == bits


@scenario
def a_token_comes_first(page: Page) -> None:
    """Where the server needs one, the page says so, and begins with the example once it has the token."""

    def guarded(route: Route) -> None:
        if route.request.headers.get("authorization") == "Bearer right":
            route.continue_()
        else:
            route.fulfill(status=401, json={"detail": "no valid token"})

    page.route("**/v1/**", guarded)
    page.reload()
    expect(page.locator("#problem")).to_contain_text("needs a token")
    expect(page.locator("main")).to_be_hidden()
    for token, said in (("wrong", "does not accept this token"), ("right", "")):
        expect(page.locator("#token")).to_be_focused()
        page.keyboard.press("Control+a")
        page.keyboard.type(token)
        page.keyboard.press("Enter")
        expect(page.locator("#problem")).to_contain_text(said)
    expect(page.locator("#text")).to_be_focused()
    expect(page.locator(".token")).to_have_count(len(page.locator("#text").input_value()))
    expect(page.locator("#token")).to_be_hidden()
    page.unroute("**/v1/**")


@scenario
def surprisal_of_each_token(page: Page) -> None:
    typed(page)
    labels = [one.get_attribute("aria-label") for one in page.locator(".token").all()]
    assert [label.split(",")[0] for label in labels] == [c if c != " " else "space" for c in TEXT]
    bits = [float(one) for one in page.locator(".token i").all_text_contents()]
    assert abs(sum(bits) / len(bits) - float(page.locator("#mean").inner_text())) < 0.1
    expect(page.locator("#next li")).to_have_count(10)
    shares = [float(one[:-1]) for one in page.locator("#next i").all_text_contents()]
    assert shares == sorted(shares, reverse=True) and 0 < sum(shares) < 101
    page.locator("#next button").first.click()
    expect(page.locator(".token")).to_have_count(len(TEXT) + 1)


@scenario
def an_edit_goes_back(page: Page) -> None:
    typed(page)
    before = page.locator(".token i").all_text_contents()
    for _ in range(4):
        page.keyboard.press("Backspace")
    expect(page.locator(".token")).to_have_count(len(TEXT) - 4)
    page.keyboard.type(TEXT[-4:])
    expect(page.locator(".token")).to_have_count(len(TEXT))
    assert page.locator(".token i").all_text_contents() == before


@scenario
def travel(page: Page) -> None:
    typed(page)
    bars = page.locator("#next").inner_text()
    page.locator(".token.here").focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect(page.locator("#where")).to_have_text("2")
    expect(page.locator("#text")).to_have_value(TEXT[:2])
    expect(page.locator(".token.later")).to_have_count(len(TEXT) - 2)
    page.locator("#position").focus()
    page.keyboard.press("End")
    expect(page.locator("#where")).to_have_text(str(len(TEXT)))
    assert page.locator("#next").inner_text() == bars
    page.keyboard.press("Home")
    expect(page.locator("#where")).to_have_text("0")
    expect(page.locator("#text")).to_have_value("")


@scenario
def memory(page: Page) -> None:
    typed(page)
    layers = page.locator(".layer canvas")
    expect(layers).to_have_count(2)
    expect(page.locator(".layer h3").first).to_have_text(
        re.compile(r"Layer 1: plstm, 12 units, slowest at the top, \d+ reset at this step")
    )
    layers.nth(1).focus()
    page.keyboard.press("ArrowDown")
    expect(page.locator("#unit")).to_have_text(
        re.compile(r"Layer 2, unit \d+: p 0\.\d+ · half-life .* steps · age .* · cell ")
    )
    first = page.locator("#unit").inner_text()
    page.keyboard.press("ArrowDown")
    expect(page.locator("#unit")).not_to_have_text(first)
    picture = page.locator("#decay").screenshot()
    layers.first.hover(position={"x": 40, "y": 5})
    expect(page.locator("#unit")).to_contain_text("Layer 1, unit ")
    assert page.locator("#decay").screenshot() != picture
    ages = layers.first.screenshot()
    page.get_by_label("cell value").check()
    assert layers.first.screenshot() != ages


@scenario
def two_continuations(page: Page) -> None:
    typed(page)
    page.get_by_label("Tokens", exact=True).fill("12")
    page.get_by_role("button", name="Continue both").click()
    forks = page.get_by_role("article")
    for i in range(2):
        expect(forks.nth(i).get_by_role("button", name="Keep")).to_be_enabled()
    drawn = [fork.locator(".drawn").text_content() for fork in forks.all()]
    assert [len(one) for one in drawn] == [12, 12] and drawn[0] != drawn[1]
    expect(page.locator("#where")).to_have_text(str(len(TEXT)))
    forks.nth(1).get_by_role("button", name="Keep").click()
    expect(page.locator("#text")).to_have_value(TEXT + drawn[1])
    expect(page.locator(".token")).to_have_count(len(TEXT) + 12)


def undisturbed(page: Page, model: str, text: str) -> str:
    """The text that a single request generates after this text, with the page's settings."""
    session = f"{page.url}v1/sessions/undisturbed"
    settings = {"n": N, "temperature": 0.7, "top_p": 1, "seed": 1}
    answer = page.request.post(
        f"{session}/generate", data={"model": model, "text": text, **settings}
    )
    page.request.delete(session)
    return answer.json()["text"]


def started(page: Page, per_second: int) -> Locator:
    """Starts continuation A, which generates slowly; returns it."""
    page.get_by_label("Tokens", exact=True).fill(str(N))
    page.get_by_label("Tokens per second").fill(str(per_second))
    fork = page.get_by_role("article").first
    fork.get_by_role("button", name="Continue").click()
    expect(fork.locator(".drawn .replica-0")).to_be_visible()
    return fork


def finished(page: Page, fork: Locator) -> str:
    page.get_by_label("Tokens per second").fill("100000")
    expect(fork.get_by_role("button", name="Keep")).to_be_enabled()
    return fork.locator(".drawn").text_content()


@scenario
def move_during_generation(page: Page) -> None:
    """Moves to the peer and back with the keyboard: the text is the same as from one server, and shows which
    server computed which part."""
    for model, text in (("lm", TEXT), ("words", "c a f e ")):
        page.get_by_label("Model").select_option(model)
        expect(page.locator("#text")).to_be_enabled()
        page.locator("#text").focus()
        typed(page, text, tokens=len(text) // (2 if model == "words" else 1))
        home, peer, _ = [
            one.get_attribute("value") for one in page.locator("#replica option").all()
        ]
        fork = started(page, per_second=8)
        page.get_by_label("Move to").focus()
        page.keyboard.press("ArrowDown")
        expect(fork.locator(".drawn .replica-1")).to_be_visible()
        expect(page.locator("#status")).to_contain_text(f"Moved: the next requests go to {peer}")
        expect(page.locator("#server")).to_have_text(peer)
        page.keyboard.press("ArrowUp")
        expect(fork.locator(".part")).to_have_count(3)
        assert finished(page, fork) == undisturbed(page, model, text)
        parts = fork.locator(".part").all()
        assert [one.get_attribute("data-mark") for one in parts] == ["①", "②", "①"]
        assert [one.get_attribute("title") for one in parts] == [home, peer, home]
        colours = [
            one.evaluate("one => getComputedStyle(one).textDecorationColor") for one in parts
        ]
        assert colours[0] == colours[2] != colours[1]
        counts = [int(one.split()[-2]) for one in page.locator("#legend li").all_text_contents()]
        assert sum(counts) == N and min(counts[:2]) > 0 == counts[2]


@scenario
def a_peer_that_fails(page: Page) -> None:
    """One server is down, one refuses, and one computes a part that does not arrive: the page continues where
    it was."""
    typed(page)
    home, peer, down = [one.get_attribute("value") for one in page.locator("#replica option").all()]
    fork, choice, status = started(page, 8), page.get_by_label("Move to"), page.locator("#status")
    choice.select_option(down)
    expect(status).to_have_text(
        f"{down} does not answer, or does not accept requests from {home} (--peer)."
        f" The stream goes on at {home}."
    )
    answered: list[int] = []
    lost = losing(answered)

    def refusing(status: int, detail: str) -> Callable[[Route], None]:
        allowed = {"access-control-allow-origin": home}
        return lambda route: route.fulfill(status=status, json={"detail": detail}, headers=allowed)

    for handler, said in (
        (lost, f"{peer} does not answer"),
        (refusing(503, "it ends"), f"{peer} refused: it ends. The stream goes on"),
        (refusing(429, "too many"), f"{peer} refused: too many. The stream goes on"),
    ):
        page.route(f"{peer}/v1/sessions/*/generate", handler)
        choice.select_option(peer)
        expect(status).to_contain_text(said)
        expect(choice).to_have_value(home)
        page.unroute(f"{peer}/v1/sessions/*/generate")
    assert finished(page, fork) == undisturbed(page, "lm", TEXT)
    assert answered == [200]
    expect(fork.locator(".part")).to_have_count(1)


def losing(answered: list[int], method: str = "POST") -> Callable[[Route], None]:
    """A server that does what it is asked, but whose answers are lost; appends their statuses."""

    def lost(route: Route) -> None:
        if route.request.method != method:
            route.continue_()
            return
        answered.append(route.fetch().status)
        route.abort()

    return lost


@scenario
def answers_that_are_lost(page: Page) -> None:
    """A peer forks the stream, and then deletes the fork: the page, which hears of neither, goes on."""
    typed(page)
    _, peer, _ = [one.get_attribute("value") for one in page.locator("#replica option").all()]
    page.get_by_label("Tokens", exact=True).fill("12")
    page.get_by_label("Tokens per second").fill("100000")
    fork, drawn = page.get_by_role("article").first, []
    for path, method in (("*/fork", "POST"), ("*", "DELETE")):
        answered: list[int] = []
        page.route(f"{peer}/v1/sessions/{path}", losing(answered, method))
        page.get_by_label("Move to").select_option(peer)
        expect(page.locator("#status")).to_contain_text(f"Moved: the next requests go to {peer}")
        fork.get_by_role("button", name="Continue").click()
        expect(page.locator("#status")).to_contain_text(f"{peer} does not answer")
        expect(fork.get_by_role("button", name="Keep")).to_be_enabled()
        expect(page.locator("#problem")).to_be_empty()
        drawn.append(fork.locator(".drawn").text_content())
        assert answered and all(status in (200, 201, 204) for status in answered)
        page.unroute(f"{peer}/v1/sessions/{path}")
    assert len(drawn[0]) == 12 and drawn[0] == drawn[1]


@scenario
def gauges(page: Page) -> None:
    typed(page)
    expect(page.locator("#gauges dt")).to_have_count(7)
    store = page.locator("#gauges div", has_text="Sessions in the store").locator("dd").first
    expect(store).to_have_text(re.compile(r"\d+"))


@scenario
def a_refusal_is_told_and_mended(page: Page) -> None:
    typed(page, "ab")
    page.keyboard.type("C")
    expect(page.locator("#problem")).to_contain_text('symbol "C" is not in the dictionary')
    page.keyboard.press("Backspace")
    page.keyboard.type("c")
    expect(page.locator(".token")).to_have_count(3)
    expect(page.locator("#problem")).to_be_empty()


@scenario
def a_view_that_fails(page: Page) -> None:
    """The session has read the piece, but not the page: it goes on from what it shows."""
    typed(page, "ab")
    for path in ("memory", "state"):
        where = f"**/v1/sessions/*/{path}"
        page.route(where, lambda route: route.fulfill(status=503, json={"detail": "of the test"}))
        page.keyboard.type("c")
        expect(page.locator("#problem")).to_have_text("of the test")
        expect(page.locator(".token")).to_have_count(2)
        page.unroute(where)
        page.keyboard.type("d")
        expect(page.locator(".token")).to_have_count(4)
        expect(page.locator("#where")).to_have_text("4")
        expect(page.locator("#problem")).to_be_empty()
        for _ in "cd":
            page.keyboard.press("Backspace")
        expect(page.locator(".token")).to_have_count(2)


@scenario
def other_models(page: Page) -> None:
    page.get_by_label("Model").select_option("ids")
    expect(page.locator("#text-hint")).to_contain_text("type numbers from 0 to 19")
    page.locator("#text").focus()
    page.keyboard.type("3 14 7 ")
    expect(page.locator(".token b")).to_have_text(["3", "14", "7"])
    page.get_by_label("Model").select_option("tagger")
    expect(page.locator("#text")).to_be_hidden()
    expect(page.locator("#request")).to_contain_text('"values": [[0, 0, 0, 0, 0], ')
    expect(page.locator(".token")).to_have_count(64)
    expect(page.locator("#next b")).to_have_count(3)
    expect(page.get_by_role("button", name="Continue both")).to_be_hidden()
    assert ink(page.locator(".layer canvas").first) > 8
    shares = page.locator("#next").inner_text()
    page.locator(".token").nth(3).click()
    expect(page.locator("#where")).to_have_text("4")
    assert page.locator("#next").inner_text() != shares
    page.get_by_label("Model").select_option("moods")
    expect(page.locator("#text")).to_be_enabled()
    page.locator("#text").focus()
    page.keyboard.type("good")
    expect(page.locator(".token b")).to_have_text([*"good"])
    expect(page.locator("#next b")).to_have_count(2)
    expect(page.locator("#where")).to_have_text("4")


def run(page: Page, address: str, function: Callable[[Page], None]) -> str | None:
    """What went wrong."""
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("dialog", lambda dialog: said.append(dialog.message))
    try:
        page.goto(address)
        expect(page.locator("#text")).to_be_enabled()
        function(page)
    except Exception:
        return traceback.format_exc() + "\n".join(said)
    expected = EXPECTED + EXPECTED_OF.get(function.__name__, ())
    return "\n".join(one for one in said if not any(sign in one for sign in expected)) or None


def left_over(page: Page, address: str) -> list[dict]:
    """The sessions in the store after waiting for the last removal; there should be none."""
    for _ in range(100):
        found = page.request.get(f"{address}/v1/sessions").json()["sessions"]
        if not found:
            break
        page.wait_for_timeout(100)
    return found


def main(address: str, chromium: str) -> None:
    expect.set_options(timeout=20_000)
    found = {}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        for i, (name, function) in enumerate(SCENARIOS.items()):
            context = browser.new_context(color_scheme=("light", "dark")[i % 2])
            page = context.new_page()
            found[name] = run(page, address, function)
            page.goto("about:blank")  # closes the page, which removes its session
        found["sessions"] = left_over(page, address)
        browser.close()
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
