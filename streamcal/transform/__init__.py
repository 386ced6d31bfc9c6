"""Calibration where scores are made: follow the published maps and apply them to live scores."""

from streamcal.transform.producer import CalibratingProducer, Producer, Sent, SentClasses
from streamcal.transform.source import FileSource, MapSource, MapUpdate, MemorySource
from streamcal.transform.status import NO_MAP, PROBLEMS, UNMAPPED, MapStatus, TransformerStatus
from streamcal.transform.transformer import CalibrationTransformer

__all__ = [
    "NO_MAP",
    "PROBLEMS",
    "UNMAPPED",
    "CalibratingProducer",
    "CalibrationTransformer",
    "FileSource",
    "MapSource",
    "MapStatus",
    "MapUpdate",
    "MemorySource",
    "Producer",
    "Sent",
    "SentClasses",
    "TransformerStatus",
]
