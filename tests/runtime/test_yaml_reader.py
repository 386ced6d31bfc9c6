import math

import pytest

from streamcal.errors import ConfigError
from streamcal.runtime.yaml_reader import parse_value, read_yaml


def written(tmp_path, content: str | bytes):
    path = tmp_path / "c.yaml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize(
    "word",
    ["off", "on", "no", "NO", "yes", "y", "n", "True", "FALSE", "NULL", "Null", "1:30", "010", "0x1F", "1_000",
     "2024-01-31", "2024-01-31T06:00:00Z", "=", ".", "90s", "a:9092,b:9092"],
)  # fmt: skip
def test_what_looks_like_a_word_stays_text(word):
    assert parse_value(word) == word


@pytest.mark.parametrize(
    ("text", "value"),
    [("true", True), ("false", False), ("null", None), ("~", None), ("", None), ("0", 0), ("-3", -3), ("+4", 4),
     (".5", 0.5), ("5.", 5.0), ("1e3", 1000.0), ("-1.5E-2", -0.015), (".inf", math.inf), ("'1'", "1"), ('"off"', "off"),
     ("[1h, NO]", ["1h", "NO"]), ("{NO: 1, 2: b, null: c}", {"NO": 1, "2": "b", "null": "c"})],
)  # fmt: skip
def test_numbers_booleans_null_and_collections_are_read(text, value):
    got = parse_value(text)
    assert got == value
    assert type(got) is type(value)


def test_the_process_wide_yaml_loader_keeps_its_meaning():
    import yaml

    assert yaml.safe_load("[off, 1:30, 010]") == [False, 90, 8]


def test_a_key_written_twice_is_a_problem_with_both_lines(tmp_path):
    found = read_yaml(written(tmp_path, "join:\n  skew: 1s\n  skew: 2s\nwindows: {}\njoin: {}\n"))
    assert found.problems == [
        ("join.skew", "is written twice, on lines 2 and 3"),
        ("join", "is written twice, on lines 1 and 5"),
    ]


def test_keys_merged_from_an_anchor_may_be_set_again(tmp_path):
    found = read_yaml(written(tmp_path, "a: &a {x: 1, y: 2}\nb:\n  <<: *a\n  y: 3\n"))
    assert found.values["b"] == {"x": 1, "y": 3}
    assert found.problems == []


def test_every_key_has_its_line(tmp_path):
    found = read_yaml(written(tmp_path, "# first\njoin:\n  skew: 1s\nlist: [{a: 1}]\n"))
    assert found.lines == {("join",): 2, ("join", "skew"): 3, ("list",): 4, ("list", "a"): 4}


@pytest.mark.parametrize("content", ["", "# nothing\n", "---\n", "null\n"])
def test_an_empty_file_is_an_empty_mapping(tmp_path, content):
    assert read_yaml(written(tmp_path, content)).values == {}


@pytest.mark.parametrize(
    ("content", "place"),
    [
        ("a: 1\n  b: 2\n", "line 2"),
        ("a: [1,\n", "line 2"),
        ("a: 1\nb: \x01\n", "line 2"),
        (b"a: 1\nb: \xff\n", "line 2"),
        ("a: 1\n---\nb: 2\n", "line 2"),
        ("a: 1\n? [x]\n: 1\n", "line 2"),
        ("a: 1\nb: *nowhere\n", "line 2"),
        ("a: 1\nb: !!timestamp 2024-01-31\n", "line 2"),
        ("a: 1\nb: !!python/name:os.system x\n", "line 2"),
        ("a: 1\nb: !!int 1:30\n", "line 2"),
        ("- a\n- b\n", "file"),
        ("word\n", "file"),
        ("[" * 5000, "file"),
    ],
)
def test_what_is_no_yaml_mapping_is_one_error_with_its_place(tmp_path, content, place):
    path = written(tmp_path, content)
    with pytest.raises(ConfigError) as caught:
        read_yaml(path)
    assert caught.value.where == str(path)
    assert [key.partition(",")[0] for key, _ in caught.value.problems] == [place]


def test_a_file_that_is_not_there_is_one_error(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        read_yaml(tmp_path / "missing.yaml")


def test_a_folder_is_one_error(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        read_yaml(tmp_path)


@pytest.mark.parametrize("text", ["[1", "{a: 1, a: 2}", "@x", "a: b: c"])
def test_a_value_that_is_no_yaml_is_refused(text):
    with pytest.raises(ValueError, match=r"not a YAML value|twice"):
        parse_value(text)
