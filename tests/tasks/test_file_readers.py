import csv
import gzip
from io import StringIO

import pytest

from permalign.errors import DataError
from permalign.tasks.file_readers import MAXIMUM_LINE_BYTES, Line, Row, read_csv, read_table, read_text


@pytest.fixture
def write(tmp_path):
    def write_bytes(content, name="data.txt"):
        path = tmp_path / name
        path.write_bytes(content)
        return path

    return write_bytes


def test_lines_are_numbered_from_one(write):
    file = read_text(write("eins\nzwei ü\n".encode()))
    assert file.lines == [Line(1, "eins"), Line(2, "zwei ü")]
    assert file.skipped == 0


def test_the_last_line_needs_no_line_end(write):
    assert read_text(write(b"a\nb")).lines == [Line(1, "a"), Line(2, "b")]


def test_only_a_newline_ends_a_line(write):
    text = "a\x0bb\x0cc\x1cd\x85e\u2028f"
    assert read_text(write(text.encode())).lines == [Line(1, text)]


@pytest.mark.parametrize(
    ("content", "line", "words"),
    [
        (b"good\nbad \xff\n", 2, "byte 5 of the line (0xff) is not UTF-8"),
        ("good\n".encode("utf-16-le"), 1, "it is UTF-16 or no text at all"),
        (b"good\rbad\n", 1, "carriage return"),
        (b"good\n\nbad\n", 2, "the line is empty"),
        (b"good\n \t\n", 2, "the line is empty"),
        (b"good\n" + b"x" * 10_000_000, 2, "longer than 1,000,000 bytes"),
    ],
)
def test_errors_give_the_file_and_the_line(write, content, line, words):
    path = write(content)
    with pytest.raises(DataError) as caught:
        read_text(path)
    assert str(caught.value).startswith(f"{path}, line {line}: ")
    assert words in str(caught.value)
    assert (caught.value.path, caught.value.line) == (path, line)


def test_a_line_of_exactly_the_limit_is_read(write):
    longest = b"x" * (MAXIMUM_LINE_BYTES - 1) + b"\n"
    assert len(read_text(write(longest)).lines[0].text) == MAXIMUM_LINE_BYTES - 1


def test_empty_lines_are_skipped_and_counted_or_kept_on_request(write):
    path = write(b"a\n\n \nb\n")
    skipping = read_text(path, blank="skip")
    assert skipping.lines == [Line(1, "a"), Line(4, "b")]
    assert skipping.skipped == 2
    assert [line.text for line in read_text(path, blank="keep").lines] == ["a", "", " ", "b"]


def test_a_missing_file_and_a_folder_are_data_errors(tmp_path):
    with pytest.raises(DataError, match="there is no such file"):
        read_text(tmp_path / "nothing.txt")
    with pytest.raises(DataError, match="cannot be read"):
        read_text(tmp_path)


def test_gzip_files_are_decompressed_and_truncated_ones_are_errors(write):
    packed = gzip.compress(b"a\tb\n" * 100)
    assert len(read_text(write(packed, "data.tsv.gz")).lines) == 100
    with pytest.raises(DataError, match="cannot be read"):
        read_text(write(packed[:-12], "torn.tsv.gz"))
    with pytest.raises(DataError, match="cannot be read"):
        read_text(write(b"plain text\n", "plain.tsv.gz"))
    with pytest.raises(DataError, match="cannot be read"):
        read_text(write(packed[:12] + b"\xff" * 30 + packed[42:], "broken.tsv.gz"))


def test_all_rows_have_the_same_number_of_columns(write):
    table = read_table(write(b"a\tb\nc\t\n"), 2)
    assert table.rows == [Row(1, ("a", "b")), Row(2, ("c", ""))]
    with pytest.raises(DataError, match=r"line 2: expected 2 tab-separated columns, found 3"):
        read_table(write(b"a\tb\nc\td\te\n"))
    with pytest.raises(DataError, match=r"line 1: expected 3 tab-separated columns, found 2"):
        read_table(write(b"a\tb\n"), 3)


def test_a_header_names_the_columns(write):
    table = read_table(write(b"zh\ten\nx\ty\n"), header=True)
    assert table.column("en") == 1
    assert table.rows == [Row(2, ("x", "y"))]
    with pytest.raises(DataError, match=r"line 1: there is no column 'de' \(found: zh, en\)"):
        table.column("de")


def test_columns_of_the_same_name_are_an_error(write):
    with pytest.raises(DataError, match=r"line 1: two columns have the same name \(en, en\)"):
        read_table(write(b"en\ten\nx\ty\n"), header=True)


def test_a_file_without_its_header_is_an_error(write):
    with pytest.raises(DataError, match="expected a header with the names of the columns"):
        read_table(write(b""), header=True)


@pytest.mark.parametrize(
    ("encoding", "line_end"),
    [("utf-8", "\n"), ("utf-8", "\r\n"), ("utf-8-sig", "\n"), ("utf-8-sig", "\r\n"), ("utf-16", "\r\n")],
)
@pytest.mark.parametrize("compress", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_files_of_other_programs_are_read(write, encoding, line_end, compress):
    content = compress(line_end.join(["one ü", "", "zwölf 𝔘\x85", ""]).encode(encoding))
    path = write(content, "other.txt.gz" if compress is gzip.compress else "other.txt")
    assert [line.text for line in read_text(path, blank="keep").lines] == ["one ü", "", "zwölf 𝔘\x85"]


def test_half_a_character_of_utf_16_is_an_error(write):
    with pytest.raises(DataError, match="begins with a UTF-16 byte order mark, but is not UTF-16"):
        read_text(write("good".encode("utf-16") + b"\x00"))


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_quoted_values_may_contain_separators_quotes_and_line_ends(write, separator):
    rows = [["id", "source", "target"], ["1", f'say{separator} "a"', "b\r\nc"], [], ["2", "d", ""]]
    text = StringIO(newline="")
    csv.writer(text, delimiter=separator).writerows(rows)
    table = read_csv(write(text.getvalue().encode()))
    assert table.header == ("id", "source", "target")
    assert table.rows == [Row(2, ("1", f'say{separator} "a"', "b\nc")), Row(5, ("2", "d", ""))]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "line 1: the file is empty"),
        (b"a,b\nc,d,e\n", "line 2: expected 2 comma-separated columns, found 3"),
        (b'a,b\n"c,d\n', r"line 2: the values are not quoted properly \(unexpected end of data\)"),
        (b'a,b\n"c"x,d\n', "line 2: the values are not quoted properly"),
    ],
)
def test_broken_comma_separated_values_are_errors(write, content, words):
    with pytest.raises(DataError, match=words):
        read_csv(write(content))
