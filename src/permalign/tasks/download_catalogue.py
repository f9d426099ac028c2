"""The datasets that `permalign data fetch` can download: URLs pinned to a commit, checksums and licences.

The package does not contain any of this data. Licences are quoted from the sources; whoever downloads a dataset has to
decide whether its licence permits the intended use.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """One file to download.

    Attributes:
        name: the path of the file within the dataset's folder.
        url: the URL, pinned to a commit.
        sha256: the SHA-256 checksum of the file.
        size: the size in bytes.
    """

    name: str
    url: str
    sha256: str
    size: int


@dataclass(frozen=True, slots=True)
class Download:
    """The files of one dataset.

    Attributes:
        name: the name that `permalign data fetch` accepts.
        folder: the subfolder of the data folder that the files are stored in.
        licence: the licence as stated by the source.
        files: the files to download.
    """

    name: str
    folder: str
    licence: str
    files: tuple[RemoteFile, ...]


def _github(repository: str, commit: str, path: str) -> str:
    return f"https://raw.githubusercontent.com/{repository}/{commit}/{path}"


def _arithmetic(name: str, sha256: str, size: int) -> RemoteFile:
    commit = "cbe8785f2cc98a296f09d14d4529a706f36b52ac"
    return RemoteFile(
        name, _github("berlino/tensor2struct-public", commit, f"data/arithmetic/raw/{name}"), sha256, size
    )


def _scan(name: str, sha256: str, size: int) -> RemoteFile:
    commit = "c4b756cbc010d75c912f16c42c8f15dc6b7e6c8f"
    return RemoteFile(name, _github("brendenlake/SCAN", commit, f"simple_split/{name}"), sha256, size)


def _geoquery(folder: str, name: str, sha256: str, size: int, subfolder: str = "") -> RemoteFile:
    commit = "6261697c301c2ff228efc8b2a1a7af249d8caeae"
    url = _github("raymondhs/statnlp-sp-neural", commit, f"data/{folder}/{name}")
    return RemoteFile(subfolder + name, url, sha256, size)


def _english_japanese(name: str, sha256: str, size: int) -> RemoteFile:
    commit = "312408a11c5fbcbc09443bebb18121f7efdcd61e"
    return RemoteFile(name, _github("odashi/small_parallel_enja", commit, name), sha256, size)


_SPLIT_880 = "geoquery-2012-08-27/splits/split-880/run-0/fold-0"

DOWNLOADS = (
    Download(
        "arithmetic",
        "arithmetic",
        "MIT (github.com/berlino/tensor2struct-public)",
        (
            _arithmetic(
                "train_10k.tsv", "ae05f84d31339ac5221748352779edc59c064e24e08d2780cb9315ad8d1cd760", 798732
            ),
            _arithmetic(
                "val_5k.tsv", "1650bea9736ff24601ea622c4013065754824e464d19947771fe52c737c730da", 399024
            ),
            _arithmetic(
                "test_5k.tsv", "8fc034c997a00ffb77e3b70521acfb801390d30c4f254d7a334203ce33c2fad7", 398832
            ),
        ),
    ),
    Download(
        "scan",
        "scan",
        "BSD (github.com/brendenlake/SCAN)",
        (
            _scan(
                "tasks_train_simple.txt",
                "941bb8a088c5f53ceff12fde902dc008933cf0c4203cc672c47b5f79d73262dd",
                3267938,
            ),
            _scan(
                "tasks_test_simple.txt",
                "1fe1c8f5a19d0dc40e41bab94278f45f66f3dc415a978bd29855a23440610fc6",
                812450,
            ),
        ),
    ),
    Download(
        "geoquery",
        "geoquery",
        "GPL-2 for the data of the University of Texas at Austin; the mirror "
        "(github.com/raymondhs/statnlp-sp-neural) states no licence of its own",
        (
            _geoquery(
                "geoquery",
                "geoFunql-en.corpus",
                "2bc9237a7060f94fbe141d8c446a48486d9b34b0c9e6b95d1bf8a416407bdba4",
                303259,
            ),
            _geoquery(
                "geoquery",
                "geoFunql-de.corpus",
                "c7d445d44ec3b9195ca3520576970ea00a136c0491183e7fb895fd49f3132490",
                297146,
            ),
            _geoquery(
                "geoquery",
                "geoFunql-zh.corpus",
                "2fcaf45b6b83be0a9062afb7f813da0f60c76017dce90154aacf764a984ce0a1",
                292706,
            ),
            _geoquery(
                "geoquery",
                "geoFunql-en.init.corpus",
                "2860081b074fe7c62bfa56b3d897787897c29e60864a7f925022be74fccab4a1",
                9046,
            ),
            _geoquery(
                "geoquery",
                "geoFunql-de.init.corpus",
                "a2ef4c42efb09e3aedefe42800df27c07aab10f35ba7ac63cae06a8e35fafd75",
                9983,
            ),
            _geoquery(
                "geoquery",
                "geoFunql-zh.init.corpus",
                "f078fb3b99da2109db7c03c397073ae56d7ff996c57738b65d0513d27b597b01",
                9615,
            ),
            _geoquery(
                _SPLIT_880,
                "train-N600",
                "ef61f24a37ab1d07123d1f2b45e17720002bf6e00b364b9a66c716755de6e3fe",
                2917,
                subfolder="split-880/",
            ),
            _geoquery(
                _SPLIT_880,
                "test",
                "cc42fd0683ff8f1a7130e1dfb69d3b0b19281de5545b3a2b1386c365abe4b1c3",
                1373,
                subfolder="split-880/",
            ),
        ),
    ),
    Download(
        "geobase",
        "geobase",
        "GPL-2 (University of Texas at Austin, through github.com/tomsherborne/geoquery-src)",
        (
            RemoteFile(
                "geobase",
                _github("tomsherborne/geoquery-src", "0f160298", "data/geobase"),
                "cfe1d62b6254ac8cae79a4c206c7e41b19e94852351caa0a17f5f335acf7086d",
                38013,
            ),
        ),
    ),
    Download(
        "en-ja",
        "en-ja",
        "no licence file (github.com/odashi/small_parallel_enja); cut from the Tanaka corpus, which its "
        "author gave to the public domain and which Tatoeba distributes under CC-BY 2.0 FR",
        (
            _english_japanese(
                "train.en", "148b05dcd28638fe20ee84f2b1127001c80982be352007dda241fb759adadc76", 1701356
            ),
            _english_japanese(
                "train.ja", "fc81a1434349ec98a449d7ae9cd2530057f689637684ecfed3501ea6a8a07ecc", 2784447
            ),
            _english_japanese(
                "dev.en", "04a2673449770657fd5e3b963cb856be3130923212b6db8ac7eaeef18f06c041", 17054
            ),
            _english_japanese(
                "dev.ja", "cd534f56b8639dc130f86a365e5ec0aa70042000bdd740a622fbbf8b6be4acca", 27781
            ),
            _english_japanese(
                "test.en", "45edb380749ec2b49cca7618fc5a7595fc9f791180672ba466b90c873a4aa8bf", 17301
            ),
            _english_japanese(
                "test.ja", "d37dc460a81b064e4106c8913eb11fa300da05cf3f58a7a5bbfec7e20947ddef", 27793
            ),
        ),
    ),
    Download(
        "tatoeba",
        "zh-en",
        "CC-BY 2.0 FR: name the authors, who are in each example's attribution "
        "(tatoeba.org through manythings.org and github.com/DaoChaShao/py-st-dl-translater-2.0)",
        (
            RemoteFile(
                "cmn.txt",
                _github(
                    "DaoChaShao/py-st-dl-translater-2.0",
                    "25e41c1970e5d38694072bf6039f06607e8cc766",
                    "data/cmn.txt",
                ),
                "9da1af87e3e61650aa38595e60baef3a4e3a18ed239a7ef4a764c0a87c7ddeff",
                4151351,
            ),
        ),
    ),
)


def download_of(folder: str, name: str) -> Download | None:
    """The download that contains the file ``name`` of ``folder``, if there is one."""
    for download in DOWNLOADS:
        if download.folder == folder and any(file.name == name for file in download.files):
            return download
    return None
