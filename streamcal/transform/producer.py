"""`CalibratingProducer`: sends prediction events that say what was served, from what, by which map."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from streamcal.transform.transformer import CalibrationTransformer

__all__ = ["CalibratingProducer", "Producer", "Sent"]


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
        name = str(id)
        event: dict[str, Any] = {
            **(extra or {}),
            "id": name,
            "ts": ts_ms,
            "raw_score": float(score),
            "score": float(served),
            "map_version": version,
            "model": model,
        }
        if segments is not None:
            event["segments"] = dict(segments)
        if weight is not None:
            event["weight"] = weight
        handle = self._producer.send(self._topic, key=name.encode(), value=self._encode(event))
        return Sent(float(served), version, handle)
