import pytest

from streamcal.runtime.durations import parse_duration


@pytest.mark.parametrize(
    ("text", "ms"),
    [("500ms", 500), ("0s", 0), ("90s", 90_000), ("15m", 900_000), ("24h", 86_400_000), ("14d", 1_209_600_000)],
)
def test_each_unit_is_milliseconds_and_keeps_its_text(text, ms):
    duration = parse_duration(text)
    assert (duration.ms, duration.text, str(duration)) == (ms, text, text)


@pytest.mark.parametrize(
    "text", ["", "5", "5 s", "-5s", "+5s", "1.5h", "1h30m", "5S", "5w", "s", "１s", "36526d", "9" * 20 + "s", "1:30"]
)
def test_anything_else_is_refused(text):
    with pytest.raises(ValueError, match=r"duration|100 years"):
        parse_duration(text)
