import subprocess
import sys

import pytest

from permalign import demo


@pytest.fixture(scope="module")
def lines():
    return demo.text().splitlines()


def test_it_fits_a_terminal(lines):
    assert max(map(len, lines)) <= 80
    assert all(line == line.rstrip() for line in lines)


def test_it_says_the_same_every_time(lines):
    assert demo.text().splitlines() == lines


def test_it_draws_the_tree_and_moves_the_verb(lines):
    drawn = ["S →", "├─ S →", "│  ├─ the", "│  └─ girl", "└─ I ⇄", "   ├─ saw", "   └─ S →"]
    drawn += ["      ├─ the", "      └─ hedgehog"]
    first = lines.index("    S →")
    assert [line[4:] for line in lines[first : first + len(drawn)]] == drawn
    assert "    before   the girl saw the hedgehog" in lines
    assert "    after    the girl the hedgehog saw" in lines


def test_the_expected_matrix_has_rows_that_sum_to_one(lines):
    first = next(number for number, line in enumerate(lines) if line.startswith("    position")) + 1
    rows = [line.split()[1:] for line in lines[first : first + 5]]
    sums = [sum(0 if cell == "." else float(cell) for cell in row) for row in rows]
    assert sums == pytest.approx([1] * 5, abs=0.02)


def test_samples_are_as_frequent_as_probable(lines):
    first = next(number for number, line in enumerate(lines) if line.endswith("probability")) + 1
    pairs = [[float(word) for word in line.split()[-2:]] for line in lines[first : first + 5]]
    spread = (0.25 / demo.SAMPLES) ** 0.5  # at most, for any probability
    assert all(abs(drawn - probability) < 4 * spread + 0.001 for drawn, probability in pairs)


def test_three_ways_to_decode_three_answers(lines):
    greedy, viterbi, order = (
        next(line for line in lines if line.startswith(f"    {name}"))
        for name in ("locally best", "most probable tree", "most probable order")
    )
    assert greedy.endswith("0 2 1  0.195")
    assert viterbi.endswith("1 0 2  0.220")
    assert order.endswith("2 1 0  0.146 + 0.098 = 0.244")


def test_it_runs_as_a_program_without_compiling_anything(lines):
    program = "import sys; from permalign import demo; demo.main(); sys.exit('numba' in sys.modules and 'numba loaded')"
    answer = subprocess.run(
        [sys.executable, "-X", "utf8", "-c", program], capture_output=True, encoding="utf-8"
    )
    assert (answer.returncode, answer.stderr) == (0, "")
    assert answer.stdout.splitlines() == lines
