"""Take the pictures of the explorer in ``docs/images``: ``python docs/screenshots.py``, where Chromium is installed.

A run of the task dates is trained first, with its checkpoints, unless the folder ``runs/screenshots/dates`` has it.
"""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode

from playwright.sync_api import Browser, sync_playwright

IMAGES = Path(__file__).parent / "images"
RUN = Path("runs/screenshots/dates")
PERMALIGN = [sys.executable, "-m", "permalign"]
TRAINING = ["--set", "training.evaluate_every=10", "--set", "training.keep_checkpoints=20"]


@contextmanager
def serving(*runs: str) -> Iterator[str]:
    """Serve runs, or the models that come with permalign; yields the address of the explorer."""
    command = [*PERMALIGN, "serve", *runs, "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        line = next(line for line in process.stderr if "explorer is at" in line)
        try:
            yield re.findall(r"http://\S+/", line)[0]
        finally:
            process.terminate()


def take(browser: Browser, address: str, name: str, panels: int, scheme: str, **state: str) -> None:
    """Take a picture of the explorer from its top to the end of the panels."""
    context = browser.new_context(
        viewport={"width": 1040, "height": 800},
        color_scheme="dark" if scheme == "dark" else "light",
        reduced_motion="reduce",
    )
    page = context.new_page()
    page.goto(f"{address}?{urlencode(state)}")
    page.locator(".panel:not(.empty):not([aria-busy])").nth(panels - 1).wait_for(timeout=120_000)
    bottom = page.evaluate("document.getElementById('legend').getBoundingClientRect().bottom")
    page.screenshot(
        path=IMAGES / name, full_page=True, clip={"x": 0, "y": 0, "width": 1040, "height": bottom + 14}
    )
    context.close()


def main() -> None:
    """Take all pictures."""
    if not RUN.exists():
        subprocess.run([*PERMALIGN, "train", "dates/exact", "--run", str(RUN), *TRAINING], check=True)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        with serving() as address:
            take(browser, address, "explorer.png", 1, "light", run="dates", sentence="march 12 , 2021")
        with serving(str(RUN)) as address:
            early = {"with": "dates", "with-checkpoint": "step-0000030"}
            sentence = "the 3rd of may 1999"
            take(browser, address, "explorer-compare.png", 2, "dark", run="dates", sentence=sentence, **early)
        browser.close()


if __name__ == "__main__":
    main()
