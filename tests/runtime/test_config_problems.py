"""What a wrong configuration is told: everything, at once, with dotted keys and where they were set."""

import pytest

from streamcal.errors import ConfigError
from streamcal.runtime.config import load_config

KAFKA = {"STREAMCAL_KAFKA__BOOTSTRAP_SERVERS": "a:9092", "STREAMCAL_KAFKA__GROUP_ID": "g"}


@pytest.fixture
def problems(tmp_path):
    def found(text: str, *, environ=None, require_kafka=False) -> dict[str, str]:
        path = tmp_path / "c.yaml"
        path.write_text(text, encoding="utf-8")
        with pytest.raises(ConfigError) as caught:
            load_config(path, environ=environ or {}, require_kafka=require_kafka)
        assert caught.value.where == str(path)
        assert caught.value.exit_code == 2
        return dict(caught.value.problems)

    return found


def test_every_problem_of_every_section_is_reported_at_once(problems):
    found = problems(
        """
kafka: {start_from: yesterday}
topics: {maps: predictions}
events: {max_weight: -1, prediction: {time_unit: sec}}
join: {labels: positive_only, horzion: 3h, skew: 5}
join: {labels: both}
windows: {pane: 7s, lengths: [1h]}
segments: {cuts: [[a, a], [b, c], [all]]}
metrics: {ece_bins: 7}
alarms: {dispersion: none}
refit: {mode: on}
models: {x: {prior: {}}}
serve: {port: 70000}
sever: {}
""",
        environ={"STREAMCAL_KAFA__GROUP": "x", "STREAMCAL_REFIT__EVERY": "soon"},
        require_kafka=True,
    )
    assert set(found) == {
        "join", "kafka.bootstrap_servers", "kafka.group_id", "kafka.start_from", "topics.maps", "events.max_weight",
        "events.prediction.time_unit", "windows.pane", "segments.cuts.0", "segments.cuts.2", "metrics.ece_bins",
        "alarms.dispersion", "refit.mode", "refit.every", "models.x.prior", "serve.port", "sever", "kafa",
    }  # fmt: skip


def test_a_problem_names_its_line_or_its_variable(problems):
    found = problems("join:\n  skew: 5\nrefit: {every: 1h}\n", environ={"STREAMCAL_REFIT__EVERY": "soon"})
    assert found["join.skew"].endswith("not 5 (line 2)")
    assert found["refit.every"].endswith("not 'soon' (STREAMCAL_REFIT__EVERY)")


def test_the_message_is_one_line_per_problem(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text("join: {skew: 5, labels: x}", encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_config(path, environ={}, require_kafka=False)
    head, *lines = str(caught.value).splitlines()
    assert head == f"{path}: 2 problems in the configuration"
    assert [line.split(":")[0].strip() for line in lines] == ["join.labels", "join.skew"]


@pytest.mark.parametrize(
    ("text", "key", "meant"),
    [
        ("join: {horzion: 1h}", "join.horzion", "horizon"),
        ("sever: {}", "sever", "serve"),
        ("events: {outcome: {filter: {path: a, equal: 1}}}", "events.outcome.filter.equal", "equals"),
        ("models: {x: {refit: {evry: 1h}}}", "models.x.refit.evry", "every"),
        ("kafka: {security: {sasl_pasword: x}}", "kafka.security.sasl_pasword", "sasl_password"),
        ("models: {x: {Horizon: 1h}}", "models.x.Horizon", "horizon"),
    ],
)
def test_an_unknown_key_is_told_what_was_meant(problems, text, key, meant):
    assert f"did you mean {meant!r}?" in problems(text)[key]


def test_an_unknown_key_like_no_other_is_told_all_there_are(problems):
    assert "known here: pane, lengths, time" in problems("windows: {zzz: 1}")["windows.zzz"]


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("windows: {pane: 0s}", "windows.pane"),
        ("windows: {pane: 7h}", "windows.pane"),
        ("windows: {pane: 2d, lengths: [2d]}", "windows.pane"),
        ("windows: {lengths: []}", "windows.lengths"),
        ("windows: {lengths: 1h}", "windows.lengths"),
        ("windows: {lengths: [90s]}", "windows.lengths.0"),
        ("windows: {lengths: [1h, 60m]}", "windows.lengths.1"),
        ("windows: {lengths: [24h, 1]}", "windows.lengths.1"),
        ("windows: {lengths: [0s]}", "windows.lengths.0"),
        ("refit: {fit_window: 90s}", "refit.fit_window"),
        ("windows: {pane: 16h, lengths: [16h]}", "windows.pane"),
        ("windows: {pane: 24h, lengths: [24h]}\nrefit: {fit_window: 36h}", "refit.fit_window"),
        ("models: {x: {refit: {fit_window: 90s}}}", "models.x.refit.fit_window"),
        ("refit: {segments: [device, country]}", "refit.segments"),
        ("segments: {cuts: [[country]]}\nrefit: {segments: [country, device]}", "refit.segments"),
        ("models: {x: {refit: {segments: [carrier]}}}", "models.x.refit.segments"),
        ("refit: {families: [prior]}", "refit.families.0"),
        ("refit: {families: [plat]}", "refit.families.0"),
        ("refit: {families: [platt, platt]}", "refit.families.1"),
        ("refit: {families: []}", "refit.families"),
        ("refit: {mode: on}", "refit.mode"),
        ("refit: {mode: false}", "refit.mode"),
        ("join: {horizon: 0s}", "join.horizon"),
        ("join: {horizon: -1h}", "join.horizon"),
        ("join: {repartition: internal}", "join.repartition"),
        ("join: {max_pending: 0}", "join.max_pending"),
        ("join: []", "join"),
        ("join: 3", "join"),
        ("segments: {cuts: [country]}", "segments.cuts.0"),
        ("segments: {cuts: [[a, b], [b, a]]}", "segments.cuts.1"),
        ("segments: {cuts: [['']]}", "segments.cuts.0.0"),
        ("segments: {cuts: [[x]]}\nevents: {prediction: {segments: {y: a}}}", "segments.cuts"),
        ("segments: {max_segments: 1.5}", "segments.max_segments"),
        ("metrics: {export: ful}", "metrics.export"),
        ("metrics: {export: [ece, eco]}", "metrics.export.1"),
        ("metrics: {export: []}", "metrics.export"),
        ("metrics: {ece_bins: '10'}", "metrics.ece_bins"),
        ("metrics: {ece_bins: 10.0}", "metrics.ece_bins"),
        ("metrics: {min_count: true}", "metrics.min_count"),
        ("alarms: {dispersion: 0}", "alarms.dispersion"),
        ("alarms: {dispersion: .inf}", "alarms.dispersion"),
        ("alarms: {tolerance_logit: .nan}", "alarms.tolerance_logit"),
        ("alarms: {tolerance_logit: -0.1}", "alarms.tolerance_logit"),
        ("alarms: {tolerance_logit: 0.8}", "alarms.tolerance_logit"),
        ("alarms: {ece: {min_n: 5}}", "alarms.ece.above"),
        ("events: {sample_rate: 0}", "events.sample_rate"),
        ("events: {sample_rate: 1.01}", "events.sample_rate"),
        ("events: {max_weight: .inf}", "events.max_weight"),
        ("events: {max_bytes: 0}", "events.max_bytes"),
        ("events: {prediction: {id: $offset}}", "events.prediction.id"),
        ("events: {prediction: {id: $header.}}", "events.prediction.id"),
        ("events: {prediction: {id: a..b}}", "events.prediction.id"),
        ("events: {prediction: {id: null}}", "events.prediction.id"),
        ("events: {prediction: {segments: $key}}", "events.prediction.segments"),
        ("events: {prediction: {segments: {country: 3, device: d}}}", "events.prediction.segments.country"),
        ("events: {outcome: {label: ''}}", "events.outcome.label"),
        ("events: {outcome: {positive_values: []}}", "events.outcome.positive_values"),
        ("events: {outcome: {positive_values: [[1]]}}", "events.outcome.positive_values.0"),
        ("events: {outcome: {positive_values: [a, b], negative_values: [b]}}", "events.outcome.negative_values"),
        ("events: {outcome: {filter: {path: a, equals: .nan}}}", "events.outcome.filter.equals"),
        ("events: {outcome: {filter: {equals: 1}}}", "events.outcome.filter.path"),
        ("topics: {outcomes: predictions}", "topics.outcomes"),
        ("topics: {maps: 'a b'}", "topics.maps"),
        ("topics: {maps: ..}", "topics.maps"),
        ("kafka: {group_id: 'a b'}", "topics.counts"),
        ("kafka: {group_id: 12}", "kafka.group_id"),
        ("kafka: {bootstrap_servers: a}", "kafka.bootstrap_servers.0"),
        ("kafka: {bootstrap_servers: 'a:b'}", "kafka.bootstrap_servers.0"),
        ("kafka: {bootstrap_servers: []}", "kafka.bootstrap_servers"),
        ("kafka: {bootstrap_servers: [1, 'a:1']}", "kafka.bootstrap_servers.0"),
        ("kafka: {commit_interval: 0s}", "kafka.commit_interval"),
        ("kafka: {start_from: 2024-13-01T00:00:00Z}", "kafka.start_from"),
        ("kafka: {start_from: 2024-01-31T06:00:00}", "kafka.start_from"),
        ("kafka: {security: {security_protocol: ssl}}", "kafka.security.security_protocol"),
        ("kafka: {security: {security_protocol: SASL_SSL}}", "kafka.security.sasl_mechanism"),
        ("kafka: {security: {ssl_cafile: ca.pem}}", "kafka.security.ssl_cafile"),
        ("kafka: {security: {ssl_check_hostname: false}}", "kafka.security.ssl_check_hostname"),
        ("kafka: {security: {security_protocol: SSL, sasl_username: a}}", "kafka.security.sasl_username"),
        ("kafka: {security: {security_protocol: SSL, ssl_keyfile: k}}", "kafka.security.ssl_certfile"),
        ("models: {x: {prior: {}}}", "models.x.prior"),
        ("models: {x: {prior: {positive_weight: 2, negative_sampling_rate: 0.5}}}", "models.x.prior"),
        ("models: {x: {prior: {negative_sampling_rate: 2}}}", "models.x.prior.negative_sampling_rate"),
        ("models: {x: {prior: {map_file: no-such-map.json}}}", "models.x.prior.map_file"),
        ("models: {x: 3}", "models.x"),
        ("models: {'': {}}", "models."),
        ("models: [x]", "models"),
        ("serve: {port: -1}", "serve.port"),
        ("serve: {port: 65536}", "serve.port"),
        ("serve: {tls_key_file: k}", "serve.tls_cert_file"),
        ("serve: {tls_cert_file: c}", "serve.tls_key_file"),
        ("serve: {allowed_hosts: ['https://x']}", "serve.allowed_hosts.0"),
        ("serve: {allowed_hosts: ['a', 'x:443']}", "serve.allowed_hosts.1"),
    ],
)
def test_a_wrong_value_is_refused_under_its_key(problems, text, key):
    found = problems(text)
    assert key in found
    assert all(text and "\n" not in text for text in found.values())


@pytest.mark.parametrize(
    ("client", "key"),
    [
        *(("consumer", key) for key in (
            "enable_auto_commit", "auto_offset_reset", "isolation_level", "group_id", "value_deserializer",
            "key_deserializer", "partition_assignment_strategy", "allow_auto_create_topics", "bootstrap_servers",
            "security_protocol", "sasl_plain_password", "ssl_cafile", "group_instance_id", "client_id", "selector",
            "auto_commit_interval_ms")),
        *(("producer", key) for key in (
            "acks", "enable_idempotence", "transactional_id", "bootstrap_servers", "value_serializer", "partitioner",
            "ssl_context", "allow_auto_create_topics")),
    ],
)  # fmt: skip
def test_client_options_that_would_break_a_promise_are_refused(problems, client, key):
    text = problems(f"kafka: {{{client}: {{{key}: s3cret}}}}")[f"kafka.{client}.{key}"]
    assert "cannot be set here" in text
    assert "s3cret" not in text


def test_client_options_the_client_does_not_know_are_refused_and_others_pass(problems, tmp_path):
    found = problems("kafka: {consumer: {fetch.min.bytes: 1, linger_ms: 2, max_poll_records: [1]}}")
    assert "did you mean 'fetch_min_bytes'?" in found["kafka.consumer.fetch.min.bytes"]
    assert set(found) == {f"kafka.consumer.{key}" for key in ("fetch.min.bytes", "linger_ms", "max_poll_records")}
    (tmp_path / "good.yaml").write_text(
        "kafka: {consumer: {session_timeout_ms: 6000}, producer: {linger_ms: 5}}", encoding="utf-8"
    )
    config = load_config(tmp_path / "good.yaml", environ={}, require_kafka=False)
    assert (config.kafka.consumer, config.kafka.producer) == ({"session_timeout_ms": 6000}, {"linger_ms": 5})


@pytest.mark.parametrize(
    ("client", "option", "text"),
    [
        ("consumer", "max_poll_records: x", "must be a number, not 'x'"),
        ("consumer", "max_poll_records: 1.5", "must be a whole number, not 1.5"),
        ("consumer", "fetch_max_bytes: -5", "must be at least 0, not -5"),
        ("consumer", "check_crcs: off", "must be true or false, not 'off'"),
        ("producer", "linger_ms: true", "must be a number, not True"),
        ("producer", "retries: .nan", "must be a number, not nan"),
    ],
)
def test_client_options_of_the_wrong_kind_are_refused_before_the_client_meets_them(problems, client, option, text):
    found = problems(f"kafka: {{{client}: {{{option}}}}}")
    assert found == {f"kafka.{client}.{option.split(':')[0]}": f"{text} (line 1)"}


def test_a_list_whose_items_are_all_wrong_is_not_called_empty_as_well(problems):
    found = problems("kafka: {bootstrap_servers: [nohost]}\nrefit: {families: [nope]}")
    assert set(found) == {"kafka.bootstrap_servers.0", "refit.families.0"}
    assert set(problems("refit: {families: []}")) == {"refit.families"}


def test_files_of_connections_are_opened_only_for_a_service_and_never_named(problems, tmp_path):
    text = "kafka: {security: {security_protocol: SSL, ssl_cafile: s3cret.pem}}"
    found = problems(text, environ=KAFKA, require_kafka=True)["kafka.security.ssl_cafile"]
    assert "cannot be read" in found
    assert "s3cret" not in found
    (tmp_path / "c.yaml").write_text(text, encoding="utf-8")
    load_config(tmp_path / "c.yaml", environ={}, require_kafka=False)


@pytest.mark.parametrize("key", ["sasl_password", "ssl_password"])
@pytest.mark.parametrize("written", ["'s3cret'", "[s3cret]", "735735"])
@pytest.mark.parametrize("way", ["file", "section"])
def test_a_secret_written_into_the_file_is_refused_and_not_repeated(problems, key, written, way):
    section = f"{{security_protocol: SASL_SSL, sasl_mechanism: PLAIN, sasl_username: a, {key}: {written}}}"
    text, environ = f"kafka: {{security: {section}}}", {}
    if way == "section":
        text, environ = "", {"STREAMCAL_KAFKA__SECURITY": section}
    found = problems(text, environ=environ)
    assert f"set STREAMCAL_KAFKA__SECURITY__{key.upper()}" in found[f"kafka.security.{key}"]
    assert written.strip("[']") not in str(found)


def test_an_empty_secret_is_told_without_its_text(problems):
    environ = {"STREAMCAL_KAFKA__SECURITY__SASL_PASSWORD": ""}
    assert "holds no text" in problems("", environ=environ)["kafka.security.sasl_password"]


@pytest.mark.parametrize(
    ("mechanism", "further", "key", "text"),
    [
        ("PLAIN", "sasl_username: a", "sasl_password_file", "is required with sasl_mechanism PLAIN"),
        ("OAUTHBEARER", "sasl_username: a", "sasl_username", "has no effect with sasl_mechanism OAUTHBEARER"),
        ("OAUTHBEARER", "ssl_check_hostname: true", "sasl_oauth_token_provider", "is required"),
        ("OAUTHBEARER", "sasl_oauth_token_provider: tokens", "sasl_oauth_token_provider", "must be module:function"),
        ("SCRAM-SHA-256", "sasl_oauth_token_provider: 'a:b'", "sasl_oauth_token_provider", "has no effect"),
    ],
)
def test_each_mechanism_has_its_own_keys(problems, mechanism, further, key, text):
    security = f"{{security_protocol: SASL_SSL, sasl_mechanism: {mechanism}, {further}}}"
    assert text in problems(f"kafka: {{security: {security}}}")[f"kafka.security.{key}"]


@pytest.mark.parametrize(
    ("environ", "key"),
    [
        ({"STREAMCAL_JOIN__HORZION": "1h"}, "join.horzion"),
        ({"STREAMCAL_KAFA__X": "1"}, "kafa"),
        ({"STREAMCAL_JOIN__HORIZON__MS": "1"}, "join.horizon.ms"),
        ({"STREAMCAL_JOIN__HORIZON": "[1"}, "join.horizon"),
        ({"STREAMCAL_JOIN__HORIZON": ""}, "join.horizon"),
        ({"STREAMCAL_JOIN": "{skew: 1s, skew: 2s}"}, "join"),
        ({"STREAMCAL_JOIN": "1h"}, "join"),
        ({"STREAMCAL_JOIN____HORIZON": "1h"}, "join."),
    ],
)
def test_a_variable_that_cannot_be_used_is_named(problems, environ, key):
    found = problems("join: {horizon: 2h}", environ=environ)
    assert list(found) == [key]
    assert next(iter(environ)) in found[key]


def test_a_configuration_from_the_environment_alone_says_so():
    with pytest.raises(ConfigError) as caught:
        load_config(None, environ={"STREAMCAL_JOIN__SKEW": "5"}, require_kafka=False)
    assert caught.value.where == "environment"
