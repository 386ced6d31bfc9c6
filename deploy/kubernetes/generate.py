"""Write the PrometheusRule from the rules of deploy/prometheus/rules: ``python deploy/kubernetes/generate.py``.

Exit code 1 from ``--check`` says that the committed file is not what the rules make.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import yaml

HERE: Final = Path(__file__).resolve().parent
TARGET: Final = HERE / "components" / "prometheus-operator" / "prometheusrule.yaml"


def prometheus_rule() -> str:
    """The resource as YAML: all groups of all rule files, in the order of the files' names."""
    files = sorted((HERE.parent / "prometheus" / "rules").glob("*.yml"))
    groups = [group for file in files for group in yaml.safe_load(file.read_text(encoding="utf-8"))["groups"]]
    resource = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "streamcal", "labels": {"app.kubernetes.io/name": "streamcal"}},
        "spec": {"groups": groups},
    }
    head = (
        "# Made by `python deploy/kubernetes/generate.py` from deploy/prometheus/rules; change those and run it again\n"
    )
    return head + yaml.safe_dump(resource, sort_keys=False, width=120, allow_unicode=True)


def main() -> int:
    """Write the file, or with ``--check`` compare it."""
    text = prometheus_rule()
    stale = not TARGET.exists() or TARGET.read_text(encoding="utf-8") != text
    if "--check" in sys.argv[1:]:
        if stale:
            print(f"not up to date: {TARGET.name}; run python deploy/kubernetes/generate.py", file=sys.stderr)
        return int(stale)
    TARGET.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
