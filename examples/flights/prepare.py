"""Turn flights.csv.gz into predictions.jsonl.gz and outcomes.jsonl.gz, as `streamcal replay` reads them.

Needs Python alone: python3 examples/flights/prepare.py [FOLDER]   (default: the working directory)

Each file is sorted by its own time, as a topic would hold it: predictions by scheduled departure, outcomes by the
moment they were known. Flights of the same time keep the order of the table. The files come out the same each time.
"""

import csv
import gzip
import json
import sys
from pathlib import Path

SOURCE = Path(__file__).with_name("flights.csv.gz")


def prediction(row: dict[str, str]) -> dict[str, object]:
    segments = {"carrier": row["carrier"], "origin": row["origin"]}
    return {"id": row["id"], "ts": int(row["scored_ms"]), "score": float(row["score"]), "segments": segments}


def outcome(row: dict[str, str]) -> dict[str, object]:
    return {"id": row["id"], "ts": int(row["known_ms"]), "label": int(row["label"])}


def write(path: Path, events: list[dict[str, object]]) -> None:
    # Without name and time in the gzip header equal input gives equal bytes.
    with path.open("wb") as file, gzip.GzipFile("", "wb", compresslevel=6, fileobj=file, mtime=0) as packed:
        for event in sorted(events, key=lambda event: event["ts"]):
            packed.write(json.dumps(event, separators=(",", ":")).encode() + b"\n")
    print(f"{path}: {len(events):,} events")


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with gzip.open(SOURCE, "rt", encoding="utf-8", newline="") as table:
        rows = list(csv.DictReader(table))
    write(folder / "predictions.jsonl.gz", [prediction(row) for row in rows])
    write(folder / "outcomes.jsonl.gz", [outcome(row) for row in rows])


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
