"""`CalibratingProducer`: sends prediction events that say what was served, from what, by which map."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from streamcal.transform.transformer import CalibrationTransformer

__all__ = ["CalibratingProducer", "Producer", "Sent", "SentClasses"]


class Producer(Protocol):
    """Whatever takes records for topics; kafka-python's ``KafkaProducer`` does, without serializers."""

    def send(self, topic: str, *, key: bytes, value: bytes) -> Any:
        """Queue one record."""
        ...


class Sent(NamedTuple):
    """What became of one prediction.

    Attributes
    ----------
    score : float
        The calibrated score: the one to act on.
    map_version : int
        Map it went through; 0 for none.
    handle : object
        What the producer returned; for kafka-python the future of the record.
    """

    score: float
    map_version: int
    handle: Any


class SentClasses(NamedTuple):
    """What became of one prediction of several classes.

    Attributes
    ----------
    scores : dict of str to float
        The calibrated scores, which sum to 1: those to act on.
    map_versions : dict of str to int
        Map each class went through; 0 for none.
    handle : object
        What the producer returned.
    """

    scores: dict[str, float]
    map_versions: dict[str, int]
    handle: Any


class CalibratingProducer:
    """Calibrates each score and sends the prediction event the monitor reads.

    Parameters
    ----------
    producer : Producer
        Not closed here.
    transformer : CalibrationTransformer
        Not closed here.
    topic : str
        The predictions topic.
    """

    def __init__(self, producer: Producer, transformer: CalibrationTransformer, topic: str = "predictions") -> None:
        self._producer = producer
        self._transformer = transformer
        self._topic = topic
        # Loaded here: 8 ms, which a transformer alone does not need before its first map.
        import msgspec  # noqa: PLC0415

        self._encode = msgspec.json.Encoder().encode

    def send(
        self,
        *,
        id: str | int,  # noqa: A002 -- the event's own field name
        score: float,
        ts_ms: int,
        model: str = "default",
        segments: Mapping[str, str] | None = None,
        weight: float | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> Sent:
        """Calibrate one raw score and send it.

        Parameters
        ----------
        id : str or int
            Id of the prediction; the outcome carries the same. Also the key of the record.
        score : float
            Raw score in [0, 1].
        ts_ms : int
            Time of the prediction, ms since the epoch.
        model, segments, weight
            As in the event; left out of it where None.
        extra : mapping, optional
            Further fields of the event, which streamcal ignores; those above win.

        Returns
        -------
        Sent

        Raises
        ------
        ValueError
            If the score is not a number in [0, 1]; nothing is sent.
        """
        served, version = self._transformer.transform(score, model, segments)
        ours = {"raw_score": float(score), "score": float(served), "map_version": version}
        handle = self._send(id, ts_ms, ours, model, segments, weight, extra)
        return Sent(float(served), version, handle)

    def send_classes(
        self,
        *,
        id: str | int,  # noqa: A002 -- the event's own field name
        scores: Mapping[str, float],
        ts_ms: int,
        model: str = "default",
        classes: Sequence[str] | None = None,
        segments: Mapping[str, str] | None = None,
        weight: float | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> SentClasses:
        """Calibrate one prediction's scores of several classes and send them.

        The event has `raw_scores`, `scores` and `map_versions`, each an object by class: every class has a map of its
        own, so that no single version says which ones were applied.

        Parameters
        ----------
        scores : mapping of str to float
            Raw score of each class, in [0, 1].
        classes : sequence of str, optional
            The classes there must be, in the monitor's order. None: those of `scores`.
        id, ts_ms, model, segments, weight, extra
            As in `send`.

        Returns
        -------
        SentClasses

        Raises
        ------
        ValueError
            If a class is missing or too many, a score is not a number in [0, 1], or all are 0; nothing is sent.
        """
        raw = {name: float(score) for name, score in scores.items()}
        served, versions = self._transformer.transform_classes(raw, model, classes, segments)
        assert isinstance(served, dict)  # as the scores
        ours = {"raw_scores": raw, "scores": served, "map_versions": versions}
        return SentClasses(served, versions, self._send(id, ts_ms, ours, model, segments, weight, extra))

    def _send(
        self,
        id: str | int,  # noqa: A002 -- the event's own field name
        ts_ms: int,
        ours: Mapping[str, Any],
        model: str,
        segments: Mapping[str, str] | None,
        weight: float | None,
        extra: Mapping[str, Any] | None,
    ) -> Any:
        name = str(id)
        event: dict[str, Any] = {**(extra or {}), "id": name, "ts": ts_ms, **ours, "model": model}
        if segments is not None:
            event["segments"] = dict(segments)
        if weight is not None:
            event["weight"] = weight
        return self._producer.send(self._topic, key=name.encode(), value=self._encode(event))
