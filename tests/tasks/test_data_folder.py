from pathlib import Path

import pytest

from permalign.errors import DataError
from permalign.tasks.data_folder import cache_folder, data_root, dataset_file
from permalign.tasks.download_catalogue import DOWNLOADS, download_of


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch, tmp_path):
    monkeypatch.delenv("PERMALIGN_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_the_argument_wins_over_the_environment_and_that_over_the_cache(monkeypatch, tmp_path):
    assert data_root() == cache_folder() / "data"
    monkeypatch.setenv("PERMALIGN_DATA", str(tmp_path / "environment"))
    assert data_root() == tmp_path / "environment"
    assert data_root(tmp_path / "argument") == tmp_path / "argument"


def test_a_tilde_is_the_home_folder():
    assert data_root("~/data") == Path.home() / "data"


@pytest.mark.parametrize("platform", ["linux", "darwin", "win32"])
def test_every_platform_has_a_cache(monkeypatch, platform):
    monkeypatch.setattr("sys.platform", platform)
    assert cache_folder().name == "permalign"


def test_a_file_that_is_there_is_found(tmp_path):
    (tmp_path / "scan").mkdir()
    (tmp_path / "scan" / "tasks.txt").write_text("x")
    assert dataset_file("scan", "tasks.txt", tmp_path) == tmp_path / "scan" / "tasks.txt"


def test_a_missing_file_is_named_with_its_place_and_the_command(tmp_path):
    with pytest.raises(DataError) as caught:
        dataset_file("en-ja", "train.en", tmp_path)
    message = str(caught.value)
    assert str(tmp_path / "en-ja" / "train.en") in message
    assert f"`permalign data fetch en-ja --data-dir {tmp_path}`" in message


def test_what_cannot_be_downloaded_is_only_to_be_placed(tmp_path):
    with pytest.raises(DataError) as caught:
        dataset_file("zh-en", "docs.tsv.gz", tmp_path)
    assert "Place docs.tsv.gz there." in str(caught.value)
    assert "permalign data fetch" not in str(caught.value)


def test_the_catalogue_is_pinned():
    assert len({download.name for download in DOWNLOADS}) == len(DOWNLOADS)
    for download in DOWNLOADS:
        assert download.licence
        for file in download.files:
            assert file.url.startswith("https://")
            assert len(file.sha256) == 64
            assert int(file.sha256, 16)
            assert download_of(download.folder, file.name) is download
