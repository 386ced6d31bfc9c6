"""What a configuration means once it is loaded."""

import hashlib
from pathlib import Path

import pytest

from streamcal.errors import ConfigError
from streamcal.runtime.config import Config, load_config

KAFKA = {"STREAMCAL_KAFKA__BOOTSTRAP_SERVERS": "a:9092", "STREAMCAL_KAFKA__GROUP_ID": "g"}


@pytest.fixture
def load(tmp_path):
    def loaded(text: str, *, environ=None, require_kafka=False) -> Config:
        path = tmp_path / "c.yaml"
        path.write_text(text, encoding="utf-8")
        return load_config(path, environ=environ or {}, require_kafka=require_kafka)

    return loaded


def test_no_file_and_an_empty_file_are_the_defaults(load):
    assert load_config(None, environ={}, require_kafka=False) == Config()
    assert load("") == Config()


def test_sections_whose_keys_are_all_commented_out_are_the_defaults(load):
    text = "kafka:\n  security:\n  consumer:\njoin:\nmodels:\nevents:\n  outcome:\ntopics:\nsegments:\n"
    assert load(text) == Config()


def test_defaults_are_the_contract():
    config = Config()
    assert (config.join.labels, config.join.horizon.ms, config.join.skew.ms) == ("both", 86_400_000, 0)
    assert (config.join.out_of_order.ms, config.join.idle_timeout.ms) == (60_000, 60_000)
    assert (config.join.idle, config.join.max_future.ms) == ("follow", 300_000)
    assert [(length.text, length.ms) for length in config.windows.lengths] == [("1h", 3_600_000), ("24h", 86_400_000)]
    assert (config.windows.pane.ms, config.windows.time) == (60_000, "outcome")
    assert (config.metrics.ece_bins, config.metrics.min_count, config.metrics.export) == (10, 20, ("core",))
    assert (config.metrics.max_series, config.segments.max_segments) == (50_000, 1000)
    assert (config.refit.mode, config.refit.fit_window.text, config.refit.every.text) == ("auto", "14d", "1h")
    assert (config.refit.families, config.refit.min_count) == (("intercept", "platt", "cir"), 50)
    assert (config.serve.host, config.serve.port) == ("127.0.0.1", 9871)
    assert (config.topics.predictions, config.topics.outcomes) == ("predictions", "outcomes")
    assert (config.topics.maps, config.topics.dead_letter) == ("streamcal.maps", None)
    assert (config.events.max_weight, config.events.sample_rate, config.events.max_bytes) == (1000, 1, 1_048_576)
    assert (config.kafka.start_from, config.kafka.commit_interval.ms) == ("latest", 1000)


def test_a_window_keeps_the_words_it_was_written_in(load):
    config = load("windows: {lengths: [60m, 1d]}")
    assert [length.text for length in config.windows.lengths] == ["60m", "1d"]


def test_unquoted_off_and_no_are_text(load):
    config = load("refit: {mode: off}\nevents: {outcome: {negative_values: [NO, off], positive_values: [yes, 1:30]}}")
    assert config.refit.mode == "off"
    assert config.events.outcome.negative_values == ("NO", "off")
    assert config.events.outcome.positive_values == ("yes", "1:30")


def test_a_model_may_be_called_no(load):
    config = load("models: {NO: {labels: positives_only}, 1: {horizon: 1h}}")
    assert config.model("NO").labels == "positives_only"
    assert config.model("1").horizon_ms == 3_600_000


def test_label_values_keep_their_types(load):
    values = load("events: {outcome: {positive_values: [1, '1', 2.5, true]}}").events.outcome.positive_values
    assert [(type(value), value) for value in values] == [(int, 1), (str, "1"), (float, 2.5), (bool, True)]


def test_segments_are_an_object_or_a_path_each(load):
    assert load("events: {prediction: {segments: p.s}}").events.prediction.segments == "p.s"
    text = "{segments: {cuts: [[c]]}, events: {prediction: {segments: {c: p.c, d: $header.d}}}}"
    assert load(text).events.prediction.segments == {"c": "p.c", "d": "$header.d"}


def test_the_empty_cut_comes_first_and_dimensions_in_order_of_appearance(load):
    config = load("segments: {cuts: [[b, a], [], [c], [a, c]]}")
    assert config.cut_list == ((), ("b", "a"), ("c",), ("a", "c"))
    assert config.dimensions == ("b", "a", "c")
    assert load("segments: {cuts: []}").cut_list == ((),)


def test_dimensions_are_composed_unicode(load):
    assert load('segments: {cuts: [["pa\\u0301is"]]}').dimensions == ("p\u00e1is",)


def test_export_is_core_full_or_names(load):
    assert load("metrics: {export: full}").metrics.export == ("full",)
    assert load("metrics: {export: [ece, bins]}").metrics.export == ("ece", "bins")


# --- models ------------------------------------------------------------------------------------------------


def test_a_model_that_is_not_named_has_the_defaults(load):
    config = load("join: {labels: positives_only, horizon: 2h}\nmodels: {x: {labels: both}}")
    settings = config.model("anything")
    assert (settings.labels, settings.horizon_ms) == ("positives_only", 7_200_000)
    assert (settings.filter, settings.prior) == (None, None)
    assert (settings.refit, settings.alarms) == (config.refit, config.alarms)


def test_a_model_overrides_key_by_key(load):
    config = load(
        "refit: {every: 2h, min_count: 7}\nalarms: {tolerance_logit: 0.3, ece: {above: 0.1}}\n"
        "models: {x: {refit: {mode: shadow}, alarms: {ece: null}, filter: {path: live, equals: true},"
        " prior: {negative_sampling_rate: 0.1}}}"
    )
    settings = config.model("x")
    assert (settings.refit.mode, settings.refit.every.text, settings.refit.min_count) == ("shadow", "2h", 7)
    assert (settings.alarms.tolerance_logit, settings.alarms.ece) == (0.3, None)
    assert (settings.filter.path, settings.filter.equals) == ("live", True)
    assert settings.prior.negative_sampling_rate == 0.1


def test_a_model_may_override_back_to_the_shipped_default(load):
    config = load("refit: {mode: off}\nmodels: {x: {refit: {mode: auto}}}")
    assert (config.model("x").refit.mode, config.model("y").refit.mode) == ("auto", "off")


def test_the_longest_horizon_is_over_all_models(load):
    assert load("join: {horizon: 1h}\nmodels: {x: {horizon: 3h}, y: {horizon: 2h}}").longest_horizon_ms == 3 * 3_600_000
    assert load("join: {horizon: 9h}\nmodels: {x: {horizon: 3h}}").longest_horizon_ms == 9 * 3_600_000


# --- kafka -------------------------------------------------------------------------------------------------


def test_replay_needs_no_kafka_but_a_daemon_does(load):
    assert load("join: {skew: 1s}").kafka.group_id is None
    with pytest.raises(ConfigError) as caught:
        load("join: {skew: 1s}", require_kafka=True)
    assert [key for key, _ in caught.value.problems] == ["kafka.bootstrap_servers", "kafka.group_id"]


def test_topics_for_counts_and_state_follow_the_group(load):
    topics = load("kafka: {group_id: fraud}\ntopics: {state: mine}").topics
    assert (topics.counts, topics.state) == ("fraud-counts", "mine")
    assert load("").topics.counts is None


@pytest.mark.parametrize("written", ["'a:9092, b:9093'", "[a:9092, b:9093]", "['a:9092','b:9093']"])
def test_servers_are_a_list_or_text_with_commas(load, written):
    assert load(f"kafka: {{bootstrap_servers: {written}}}").kafka.bootstrap_servers == ("a:9092", "b:9093")


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("earliest", None),
        ("latest", None),
        ("2024-01-31T06:00:00Z", 1_706_680_800_000),
        ("2024-01-31T07:00:00+01:00", 1_706_680_800_000),
        ("2024-01-31T06:00:00.123456789Z", 1_706_680_800_123),
    ],
)
def test_a_group_starts_at_an_end_or_a_time(load, text, ms):
    assert load(f"kafka: {{start_from: {text}}}").kafka.start_from_ms == ms


def test_secrets_are_read_from_their_files_under_the_names_of_the_client(load, tmp_path):
    (tmp_path / "password").write_text("s3cret\n", encoding="utf-8")
    config = load(
        "kafka: {security: {security_protocol: SASL_SSL, sasl_mechanism: SCRAM-SHA-512, sasl_username: me,"
        f" sasl_password_file: {tmp_path}/password, ssl_check_hostname: false}}}}",
        environ=KAFKA,
        require_kafka=True,
    )
    options = config.kafka.security.client_options()
    assert options.pop("ssl_context").check_hostname is False
    assert "".join(options.pop("sasl_plain_password")) == "s3cret"
    assert options == {"security_protocol": "SASL_SSL", "sasl_mechanism": "SCRAM-SHA-512", "sasl_plain_username": "me"}
    assert "s3cret" not in repr(config)


PLAIN = "kafka: {security: {security_protocol: SASL_SSL, sasl_mechanism: PLAIN, sasl_username: me}}"
PASSWORD = "STREAMCAL_KAFKA__SECURITY__SASL_PASSWORD"


@pytest.mark.parametrize("secret", ["s3cret", "12345", "[1", "null", " ends with a blank "])
def test_a_secret_of_the_environment_is_taken_as_it_is_and_shown_nowhere(load, secret):
    config = load(PLAIN, environ={PASSWORD: secret})
    options = config.kafka.security.client_options()
    assert options["sasl_plain_password"].encode() == secret.encode()
    shown = [
        repr(config),
        str(config.model_dump()),
        config.model_dump_json(),
        repr(options),
        f"{options}",
        config.hash(),
    ]
    assert not any(secret in text for text in shown if secret != "null")
    assert config.hash() == load(PLAIN, environ={PASSWORD: "another"}).hash()


def test_options_of_the_client_carry_only_names_it_knows():
    from kafka import KafkaConsumer, KafkaProducer

    options = set(Config().kafka.security.client_options())
    assert options <= set(KafkaConsumer.DEFAULT_CONFIG)
    assert options <= set(KafkaProducer.DEFAULT_CONFIG)


def test_a_secret_that_vanished_since_is_one_clear_error(load, tmp_path):
    text = (
        "kafka: {security: {security_protocol: SASL_SSL, sasl_mechanism: PLAIN, sasl_username: me,"
        f" sasl_password_file: {tmp_path}/gone}}}}"
    )
    with pytest.raises(ConfigError, match=r"kafka\.security\.sasl_password_file: the file cannot be read"):
        load(text).kafka.security.client_options()


# --- environment -------------------------------------------------------------------------------------------


def test_the_environment_wins_over_the_file(load):
    environ = {
        "STREAMCAL_JOIN__HORIZON": "12h",
        "STREAMCAL_WINDOWS__LENGTHS": "[2h, 7d]",
        "STREAMCAL_REFIT__MODE": "off",
        "STREAMCAL_EVENTS__OUTCOME__FILTER": "{path: kind, equals: NO}",
        "STREAMCAL_KAFKA__BOOTSTRAP_SERVERS": "a:1,b:2",
        "PATH": "/bin",
    }
    config = load("join: {horizon: 1h, skew: 5s}", environ=environ)
    assert (config.join.horizon.text, config.join.skew.text) == ("12h", "5s")
    assert [length.text for length in config.windows.lengths] == ["2h", "7d"]
    assert config.refit.mode == "off"
    assert config.events.outcome.filter.equals == "NO"
    assert config.kafka.bootstrap_servers == ("a:1", "b:2")


def test_the_environment_finds_a_model_whatever_its_letters(load):
    config = load("models: {Fraud: {labels: both}}", environ={"STREAMCAL_MODELS__FRAUD__HORIZON": "3h"})
    assert config.model("Fraud").horizon_ms == 3 * 3_600_000
    assert list(config.models) == ["Fraud"]


def test_a_variable_of_a_whole_section_replaces_it_and_longer_ones_add(load):
    environ = {"STREAMCAL_JOIN__SKEW": "9s", "STREAMCAL_JOIN": "{horizon: 2h}"}
    config = load("join: {labels: positives_only}", environ=environ)
    assert (config.join.labels, config.join.horizon.text, config.join.skew.text) == ("both", "2h", "9s")


def test_variables_that_name_no_key_of_ours_are_left_alone():
    assert load_config(None, environ={"STREAMCAL_TEST_KAFKA": "h:1", "STREAMCAL": "x"}, require_kafka=False) == Config()


# --- hash --------------------------------------------------------------------------------------------------


def test_the_hash_is_of_the_meaning_not_of_the_writing(load):
    first = load("join: {horizon: 24h, skew: 1000ms}\nsegments: {cuts: [[a], []]}\nevents: {max_weight: 5}")
    again = load("events: {max_weight: 5.0}\nsegments: {cuts: [[a]]}\njoin: {skew: 1s, horizon: 1d, labels: both}")
    assert first.hash() == again.hash()
    assert len(bytes.fromhex(first.hash())) == hashlib.sha256().digest_size


def test_a_model_key_that_repeats_the_default_does_not_change_the_hash(load):
    assert load("models: {x: {horizon: 24h}}").hash() == load("models: {x: {}}").hash()


@pytest.mark.parametrize(
    "text",
    [
        "kafka: {bootstrap_servers: 'x:1', group_id: y, client_id: z, start_from: earliest}",
        "serve: {host: 0.0.0.0, port: 80}",
        "topics: {maps: other, counts: c, state: s}",
    ],
)
def test_the_hash_ignores_where_things_run(load, text):
    assert load(text).hash() == Config().hash()


@pytest.mark.parametrize(
    "text",
    [
        "topics: {predictions: p2}",
        "join: {skew: 1s}",
        "join: {labels: positives_only}",
        "windows: {lengths: [60m, 24h]}",
        "windows: {time: prediction}",
        "segments: {cuts: [[country]]}",
        "events: {outcome: {filter: {path: a, equals: 1}}}",
        "events: {prediction: {segments: {country: a, device: b}}}",
        "metrics: {min_count: 21}",
        "alarms: {dispersion: 2}",
        "refit: {mode: off}",
        "models: {x: {prior: {positive_weight: 2}}}",
    ],
)
def test_the_hash_sees_what_is_measured(load, text):
    assert load(text).hash() != Config().hash()


def test_a_configuration_cannot_be_changed():
    from pydantic import ValidationError

    with pytest.raises(ValidationError, match="frozen"):
        Config().join.labels = "positives_only"


def test_the_configuration_of_this_repository_is_the_defaults():
    shipped = Path(__file__).parents[2] / "config.yaml"
    assert load_config(shipped, environ={}, require_kafka=False) == Config()
