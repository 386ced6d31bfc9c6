"""streamcal: calibration of scores used as numbers, measured and corrected on Kafka streams."""

__version__ = "0.1.0"
