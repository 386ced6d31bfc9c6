"""Write the Prometheus rules, the Grafana rules and the dashboards from their one source: ``python deploy/generate``.

Exit code 1 from ``--check`` says that a committed file is not what the sources make.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Final

from alerts_labels import LABELS
from alerts_process import PROCESS
from alerts_scores import SCORES
from documents import to_json, to_yaml
from grafana_rules import grafana_rules
from model import model_dashboard
from overview import overview_dashboard
from prometheus_rules import alert_rules, recording_rules
from recording import RECORDING

GROUPS: Final = {"scores": SCORES, "labels": LABELS, "process": PROCESS}
DEPLOY: Final = Path(__file__).resolve().parents[1]


def files(runbook: str) -> dict[Path, str]:
    """Path to text of everything made."""
    return {
        DEPLOY / "prometheus" / "rules" / "streamcal.recording.yml": to_yaml(recording_rules(RECORDING)),
        DEPLOY / "prometheus" / "rules" / "streamcal.alerts.yml": to_yaml(alert_rules(GROUPS, runbook)),
        DEPLOY / "grafana" / "provisioning" / "alerting" / "streamcal.yml": to_yaml(grafana_rules(GROUPS, runbook)),
        DEPLOY / "grafana" / "dashboards" / "streamcal-overview.json": to_json(overview_dashboard()),
        DEPLOY / "grafana" / "dashboards" / "streamcal-model.json": to_json(model_dashboard()),
    }


def main() -> int:
    """Write the files, or with ``--check`` compare them."""
    parser = argparse.ArgumentParser(prog="deploy/generate", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; name files that are not up to date")
    parser.add_argument(
        "--runbook",
        default="docs/runbook.md",
        metavar="ADDRESS",
        help="where you host the runbook; alerts link to ADDRESS#anchor (default: the path in the repository)",
    )
    options = parser.parse_args()
    stale = [path for path, text in files(options.runbook).items() if _differs(path, text)]
    for path in stale:
        if options.check:
            print(f"not up to date: {path.relative_to(DEPLOY.parent)}; run python deploy/generate", file=sys.stderr)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(files(options.runbook)[path], encoding="utf-8")
            print(f"wrote {path.relative_to(DEPLOY.parent)}")
    return 1 if options.check and stale else 0


def _differs(path: Path, text: str) -> bool:
    return not path.exists() or path.read_text(encoding="utf-8") != text


if __name__ == "__main__":
    sys.exit(main())
