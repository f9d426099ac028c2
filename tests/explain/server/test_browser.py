"""The explorer in a real browser: typing, hovering, sharing addresses, narrow windows, hostile input."""

import re
from pathlib import Path
from urllib.parse import quote

import pytest

SENTENCE = "a b c d"


def type_sentence(page, sentence):
    # playwright first empties the field; the page would put its example there if it were still loading
    page.locator("#run option").first.wait_for(state="attached")
    page.get_by_label("Sentence", exact=True).fill(sentence)
    page.keyboard.press("Enter")


def output_of(page, index=0):
    return page.locator(".panel .output bdi").nth(index)


def expect_text(locator, text):
    from playwright.sync_api import expect

    expect(locator).to_have_text(text, timeout=15_000)


def reordered(page):
    return page.locator(".reordered .word text").all_text_contents()


def test_a_sentence_is_typed_and_reordered(open_page):
    page = open_page()
    type_sentence(page, SENTENCE)
    expect_text(output_of(page), "D C B A")
    assert page.locator(".source .word text").all_text_contents() == list("abcd")
    assert reordered(page) == list("dcba")
    assert page.locator(".node").count() == 3
    assert page.locator(".node.inverted").count() == 3
    assert (
        "0.9" in page.locator(".confidence").inner_text() or "1.0" in page.locator(".confidence").inner_text()
    )


def test_an_example_is_a_click_away(open_page):
    page = open_page()
    page.locator("#examples").get_by_role("button", name="a b c d").click()
    expect_text(output_of(page), "D C B A")


def test_the_page_opens_with_an_example_of_its_run(open_page):
    page = open_page()
    expect_text(output_of(page), "B A")
    chips = page.locator("#examples button")
    assert chips.all_text_contents() == ["a b", "a b c", "a b c d", "d c b a"]
    assert page.locator("#examples [aria-current]").all_text_contents() == ["a b"]
    assert page.locator("#legend li:visible").count() == 7  # nodes have no labels
    assert "sentence" not in page.url  # nobody has asked for it


def test_an_output_is_compared_with_the_expected_one(open_page):
    page = open_page(f"?sentence={quote(SENTENCE)}")
    expect_text(page.locator(".verdict"), "✓ as expected")
    page.get_by_label("Checkpoint").fill("0")
    page.locator(".verdict.wrong").wait_for()
    assert page.locator(".verdict").inner_text() == "✗ expected D C B A"
    type_sentence(page, "a b d")  # in no data
    expect_text(output_of(page), "D B A")
    assert page.locator(".verdict").is_hidden()


def test_wrong_predictions_are_browsed_and_lead_to_their_tree(open_page):
    page = open_page(viewport={"width": 375, "height": 700})
    rows = page.locator(".prediction")
    expect_text(page.locator("#browser .about"), "exact: 2 of 4 are wrong")
    assert rows.locator(".sentence > bdi").all_text_contents() == ["a b c", "d c b a", "a b", "a b c d"]
    assert rows.first.locator(".differs").all_text_contents() == ["A", "A"]
    page.locator("#only").select_option("wrong")
    expect_text(page.locator(".place"), "1–2 of 2")
    page.get_by_label("Words from").fill("4")
    page.keyboard.press("Tab")
    expect_text(page.locator(".place"), "1–1 of 1")
    rows.first.focus()
    page.keyboard.press("Enter")
    expect_text(output_of(page), "A B C D")
    assert page.evaluate("document.activeElement.id") == "panels"
    assert page.get_by_label("Sentence", exact=True).input_value() == "d c b a"


def test_differences_between_two_runs_are_marked(open_page):
    page = open_page(f"?sentence={quote(SENTENCE)}&with=exact&with-checkpoint=step-0000000")
    page.locator("#difference").wait_for()
    assert "The outputs differ" in page.locator("#difference").inner_text()
    assert "the alignments differ" in page.locator("#difference").inner_text()
    assert page.locator(".panel .output .differs").count() > 0
    assert page.locator(".panel").nth(0).locator(".segment.differs").count() > 0
    first, second = (page.locator(".panel").nth(index).bounding_box() for index in (0, 1))
    assert first["x"] + first["width"] <= second["x"]  # side by side
    marked = page.locator(".panel").nth(0).locator(".node.differs").count()
    assert marked == page.locator(".panel").nth(1).locator(".node.differs").count()
    page.get_by_label("Checkpoint").nth(1).focus()
    page.keyboard.press("End")  # the same model twice
    expect_text(
        page.locator("#difference"),
        "The outputs are the same, the orders are the same, the trees are the same, the alignments are the same.",
    )
    assert page.locator(".panel .differs").count() == 0


def test_a_picture_is_saved_as_svg_and_as_png(open_page):
    page = open_page(f"?sentence={quote(SENTENCE)}")
    expect_text(output_of(page), "D C B A")
    for name, magic in (("SVG", b"<svg"), ("PNG", b"\x89PNG")):
        with page.expect_download() as download:
            page.get_by_role("button", name=f"Save {name}").click()
        content = Path(download.value.path()).read_bytes()
        assert content.startswith(magic)
        assert download.value.suggested_filename == f"permalign.{name.lower()}"
    assert len(content) > 5_000  # an empty picture is much smaller


def test_another_run_comes_with_its_own_example(open_page):
    page = open_page()
    expect_text(output_of(page), "B A")
    page.locator("#run").select_option("ssnt")
    expect_text(page.locator(".panel h2"), "ssnt")
    expect_text(page.locator("#browser .about"), "ssnt: 2 of 4 are wrong")


def test_hovering_over_a_segment_lights_up_its_words(open_page):
    page = open_page(f"?sentence={quote(SENTENCE)}")
    expect_text(output_of(page), "D C B A")
    segment = page.locator(".segment").first
    segment.hover()
    assert page.locator(".source .word.lit text").all_text_contents() == ["d"]
    assert page.locator(".line.lit").count() == 1
    page.mouse.move(0, 0)
    assert page.locator(".lit").count() == 0


def test_the_keyboard_can_do_what_the_mouse_does(open_page):
    page = open_page(f"?sentence={quote(SENTENCE)}")
    expect_text(output_of(page), "D C B A")
    page.locator(".segment").nth(1).focus()
    assert page.locator(".source .word.lit text").all_text_contents() == ["c"]
    page.get_by_label("Sample").focus()
    page.keyboard.press("ArrowRight")
    expect_text(page.locator(".sample .value"), "1 of 8")
    page.get_by_role("button", name="Ways to decode").focus()
    page.keyboard.press("Enter")
    page.locator(".comparison table").wait_for()
    assert page.locator(".comparison tbody tr").count() == 3


def test_screen_readers_are_told_what_is_shown(open_page):
    page = open_page(f"?sentence={quote(SENTENCE)}")
    expect_text(output_of(page), "D C B A")
    segment = page.locator(".segment").first
    assert segment.get_attribute("aria-label") == "D, from d"
    page.get_by_text("In words").click()
    assert "Read in this order: d c b a" in page.locator("details.words").inner_text()
    for control in page.locator("input, select").all():
        assert control.evaluate("control => control.labels.length") == 1
    assert page.locator("#message").get_attribute("aria-live") == "polite"


def test_the_slider_chooses_a_sample(open_page):
    page = open_page(f"?sentence={quote(SENTENCE)}&checkpoint=step-0000000&sample=1")
    orders = set()
    for number in range(1, 9):
        page.get_by_label("Sample").fill(str(number))
        expect_text(page.locator(".sample .value"), f"{number} of 8")
        page.locator(".panel:not([aria-busy])").wait_for()
        orders.add(tuple(reordered(page)))
    assert len(orders) > 1  # untrained, so undecided
    assert "sample=8" in page.url


def test_checkpoints_are_stepped_through(open_page):
    page = open_page(f"?sentence={quote(SENTENCE)}")
    expect_text(output_of(page), "D C B A")
    before = page.locator(".confidence").inner_text()
    page.get_by_label("Checkpoint").focus()
    page.keyboard.press("Home")
    expect_text(page.locator(".checkpoint .value"), "step 0")
    page.wait_for_function("before => document.querySelector('.confidence').innerText !== before", arg=before)
    assert "checkpoint=step-0000000" in page.url


def test_two_runs_are_compared(open_page):
    page = open_page(f"?sentence={quote(SENTENCE)}")
    expect_text(output_of(page), "D C B A")
    page.get_by_label("Compare with").select_option("ssnt")
    page.locator(".panel .segment").nth(4).wait_for()
    assert page.locator(".panel h2").all_text_contents() == ["exact", "ssnt"]
    page.wait_for_url("**with=ssnt*")


def test_two_checkpoints_of_a_single_run_are_compared(open_page):
    page = open_page()
    page.route("**/api/runs", lambda route: route.fulfill(json=route.fetch().json()[:1]))
    page.reload()
    expect_text(output_of(page), "B A")
    page.get_by_label("Compare with").select_option("exact")
    page.locator(".panel:not(.empty)").nth(1).wait_for()
    page.get_by_label("Checkpoint").nth(1).fill("0")
    page.wait_for_url("**with-checkpoint=step-0000000*")
    page.locator("#difference:visible").wait_for()


def test_a_given_target_is_explained(open_page):
    page = open_page()
    page.get_by_label("Explain this output instead").fill("A B")
    type_sentence(page, "a b")
    expect_text(output_of(page), "A B")
    assert "summed over all trees" in page.locator(".note").all_text_contents()[-1]
    assert sorted(reordered(page)) == ["a", "b"]
    assert page.locator(".sample").is_hidden()


def test_an_output_that_is_typed_before_the_runs_are_known_stays(open_page):
    page = open_page()
    expect_text(output_of(page), "B A")
    held = []
    page.route("**/api/runs", lambda route: held.append(route))
    page.reload(wait_until="commit")
    page.get_by_label("Explain this output instead").fill("A B")
    while not held:
        page.wait_for_timeout(50)
    with page.expect_response("**/api/runs"):
        held[0].continue_()
    type_sentence(page, "a b")
    expect_text(output_of(page), "A B")


def test_an_address_shows_a_colleague_the_same(open_page):
    mine = open_page()
    type_sentence(mine, SENTENCE)
    expect_text(output_of(mine), "D C B A")
    mine.get_by_label("Compare with").select_option("ssnt")
    mine.locator(".panel .segment").nth(4).wait_for()
    mine.get_by_label("Sample").first.fill("3")
    expect_text(mine.locator(".sample .value").first, "3 of 8")
    mine.locator(".panel:not([aria-busy])").nth(1).wait_for()
    mine.wait_for_url("**&sample=3*")
    theirs = open_page("?" + mine.url.split("?")[1])
    expect_text(theirs.locator(".sample .value").first, "3 of 8")
    theirs.locator(".panel:not([aria-busy]):not(.empty)").nth(1).wait_for()
    assert reordered(theirs) == reordered(mine)
    assert theirs.get_by_label("Sentence", exact=True).input_value() == SENTENCE


def test_back_is_the_sentence_before(open_page):
    page = open_page()
    for sentence, output in (("a b", "B A"), ("c d", "D C")):
        type_sentence(page, sentence)
        expect_text(output_of(page), output)
    page.go_back()
    expect_text(output_of(page), "B A")
    assert page.get_by_label("Sentence", exact=True).input_value() == "a b"


@pytest.mark.parametrize("width", [320, 390, 768])
def test_a_narrow_window_does_not_overflow(open_page, width):
    sentence = " ".join("abcdef" * 4)
    page = open_page(f"?sentence={quote(sentence)}&with=ssnt", viewport={"width": width, "height": 700})
    page.locator(".panel:not(.empty)").nth(1).wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    scroller = page.locator(".scroller").first
    cut = scroller.evaluate("element => element.scrollWidth > element.clientWidth")
    assert cut == (width < 768)  # a picture shrinks first, and scrolls visibly when it cannot shrink further
    assert scroller.evaluate("element => element.classList.contains('cut')") == cut
    root, seen = page.locator(".node").first.bounding_box(), scroller.bounding_box()
    assert seen["x"] <= root["x"] <= seen["x"] + seen["width"]
    for button in page.locator("button:visible").all():
        assert button.bounding_box()["height"] >= 32


@pytest.mark.parametrize(
    "sentence",
    [
        "<script>alert(1)</script> <img src=x onerror=alert(1)> a",
        "שלום עולם a",
        "👩‍👩‍👧 🏳️‍🌈 a",
        "\u202eevil a",
        '"><svg onload=alert(1)> a',
        "x" * 300 + " a",
    ],
)
def test_hostile_sentences_are_shown_as_words(open_page, sentence):
    page = open_page(viewport={"width": 390, "height": 700})
    type_sentence(page, sentence)
    page.locator(".permalign-picture").wait_for()
    assert page.locator(".source .word").count() == len(sentence.split())
    assert page.locator("#panels script, #panels img, #panels [onload]").count() == 0
    assert page.evaluate("document.scrollingElement.scrollWidth <= innerWidth")
    page.wait_for_url("**/?sentence=*")
    shared = open_page("?" + page.url.split("?")[1])
    shared.locator(".permalign-picture").wait_for()
    assert shared.get_by_label("Sentence", exact=True).input_value() == sentence


def test_a_sentence_of_spaces_is_refused_with_a_reason(open_page):
    page = open_page()
    expect_text(output_of(page), "B A")
    type_sentence(page, "   ")
    expect_text(page.locator("#message.wrong"), "The sentence is empty. Type at least one word.")
    expect_text(output_of(page), "B A")  # what was shown stays


def test_a_phone_has_large_tap_targets(open_page):
    page = open_page(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    expect_text(output_of(page), "B A")
    for target in page.locator("button:visible, summary:visible, select:visible, nav a").all():
        assert target.bounding_box()["height"] >= 42
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_ten_thousand_words_are_refused_with_a_reason(open_page):
    page = open_page()
    type_sentence(page, "a " * 10_000)
    message = page.locator("#message.wrong")
    message.wait_for()
    assert re.search(r"10,000 words, but at most 60|has .* characters, but at most", message.inner_text())
    assert "sentence" not in page.url  # only what was answered gets into the address
    type_sentence(page, "a b")
    expect_text(output_of(page), "B A")
    assert page.locator("#message").inner_text() == ""


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("run=nowhere", "There is no run “nowhere” here"),
        ("with=nowhere", "There is no run “nowhere” here"),
        ("checkpoint=step-0000007", "exact has no checkpoint “step-0000007” here"),
    ],
)
def test_a_shared_address_that_asks_for_something_missing_is_explained(open_page, query, message):
    page = open_page(f"?sentence={quote(SENTENCE)}&{query}")
    page.locator("#message.wrong").wait_for()
    assert message in page.locator("#message").inner_text()
    assert page.locator(".panel").count() == 0
    page.get_by_role("button", name="Show").click()
    expect_text(output_of(page), "D C B A")
    assert page.locator("#message").inner_text() == ""


def test_motion_respects_the_users_preference(open_page):
    counting = "document.getAnimations().length"
    lively = open_page(f"?sentence={quote(SENTENCE)}", reduced_motion="no-preference")
    lively.locator(".permalign-picture").wait_for()
    assert lively.evaluate(counting) > 4
    calm = open_page(f"?sentence={quote(SENTENCE)}", reduced_motion="reduce")
    calm.locator(".permalign-picture").wait_for()
    assert calm.evaluate(counting) == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_contrast_with_the_background(open_page, scheme):
    page = open_page(f"?sentence={quote(SENTENCE)}", color_scheme=scheme)
    page.locator(".permalign-picture").wait_for()
    ink = page.locator(".source text").first.evaluate("element => getComputedStyle(element).fill")
    paper = page.locator(".panel").first.evaluate("element => getComputedStyle(element).backgroundColor")
    assert contrast(ink, paper) > 7
    quiet = page.locator(".row-name").first.evaluate("element => getComputedStyle(element).fill")
    assert contrast(quiet, paper) > 4.5


def contrast(*colours):
    """Return the contrast ratio of WCAG 2."""
    lights = []
    for colour in colours:
        parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
        red, green, blue = (
            part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
        )
        lights.append(0.2126 * red + 0.7152 * green + 0.0722 * blue)
    return (max(lights) + 0.05) / (min(lights) + 0.05)


def test_a_picture_is_saved(open_page, tmp_path):
    page = open_page(f"?sentence={quote(SENTENCE)}")
    expect_text(output_of(page), "D C B A")
    with page.expect_download() as download:
        page.get_by_role("button", name="Save SVG").click()
    download.value.save_as(tmp_path / "picture.svg")
    assert (tmp_path / "picture.svg").read_text("utf-8").startswith("<svg")


def test_the_picture_that_is_saved_is_the_one_that_is_shown(open_page, browser, tmp_path):
    query = f"?sentence={quote(SENTENCE)}&checkpoint=step-0000000"
    page = open_page(query)
    page.locator(".panel:not([aria-busy]):not(.empty)").wait_for()
    choice = reordered(page)
    for number in range(1, 9):
        page.get_by_label("Sample").fill(str(number))
        expect_text(page.locator(".sample .value"), f"{number} of 8")
        page.locator(".panel:not([aria-busy])").wait_for()
        if reordered(page) != choice:
            break
    with page.expect_download() as download:
        page.get_by_role("button", name="Save SVG").click()
    download.value.save_as(tmp_path / "picture.svg")
    saved = open_file(browser, tmp_path / "picture.svg", color_scheme="dark")
    assert reordered(saved) == reordered(page) != choice
    assert_contrast_on_white(saved)
    saved.context.close()


def open_file(browser, file, **options):
    page = browser.new_context(**options).new_page()
    page.goto(file.as_uri())
    return page


def assert_contrast_on_white(page):
    ink = page.locator(".source text").first.evaluate("element => getComputedStyle(element).fill")
    paper = page.locator(".permalign-picture").evaluate(
        "element => getComputedStyle(element).backgroundColor"
    )
    assert paper == "rgb(255, 255, 255)"
    assert contrast(ink, paper) > 7


def test_a_file_is_as_legible_on_a_dark_system(browser, exact_model, tmp_path):
    from permalign.explain import explain, svg

    file = tmp_path / "picture.svg"
    file.write_text(svg(explain(exact_model, SENTENCE)), "utf-8")
    page = open_file(browser, file, color_scheme="dark")
    assert_contrast_on_white(page)
    page.context.close()


def test_other_questions_do_not_stop_a_sample(open_page):
    page = open_page(f"?sentence={quote(SENTENCE)}&checkpoint=step-0000000")
    page.locator(".panel:not([aria-busy]):not(.empty)").wait_for()
    held = []
    page.route("**/api/samples", lambda route: held.append(route))
    page.get_by_label("Sample").fill("2")
    page.get_by_role("button", name="Ways to decode").click()
    page.locator(".comparison table, .comparison p").first.wait_for()
    with page.expect_download():
        page.get_by_role("button", name="Save SVG").click()
    marked = "document.querySelector('.permalign-picture').dataset.old = 'yes'"
    page.evaluate(marked)
    held[0].continue_()
    page.locator(".permalign-picture:not([data-old])").wait_for()
    page.locator(".panel:not([aria-busy])").wait_for()


def test_a_page_of_its_own_works_without_a_server(browser, exact_model, tmp_path):
    from permalign.explain import compare, explain, html

    file = tmp_path / "page.html"
    file.write_text(html(explain(exact_model, SENTENCE), compare(exact_model, SENTENCE)), "utf-8")
    page = browser.new_page()
    requests = []
    page.on("request", lambda request: requests.append(request.url))
    page.goto(file.as_uri())
    page.locator(".segment").first.hover()
    assert page.locator(".source .word.lit text").first.text_content() == "d"
    assert requests == [file.as_uri()]
    page.close()


def test_the_documentation_of_the_api_is_a_page(open_page):
    page = open_page("api/docs")
    assert page.get_by_role("heading", name="POST /api/explain").is_visible()
    page.get_by_role("link", name="Trace").first.click()
    assert page.url.endswith("#Trace")
