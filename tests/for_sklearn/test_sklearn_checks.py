"""scikit-learn's own checks of estimators, with warnings as errors."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import _get_check_estimator_ids, parametrize_with_checks

from streamcal.sklearn import GIRBCalibrator, PriorCalibratedClassifier

FEW_GROUPS = GIRBCalibrator(groups=3, min_count=5, cv=3)
BALANCED = PriorCalibratedClassifier(LogisticRegression(class_weight="balanced"))


def cannot_pass(estimator: Any) -> dict[str, str]:
    if estimator is BALANCED:
        return {"check_classifiers_one_label_sample_weights": "scikit-learn's balancing divides by the weight 0 itself"}
    if estimator is FEW_GROUPS:
        why = "folds of repeated rows differ, and a weight is not that many rows of evidence"
        return {
            "check_sample_weight_equivalence_on_dense_data": why,
            "check_sample_weight_equivalence_on_sparse_data": why,
        }
    return {}


def checks() -> list[Any]:
    """scikit-learn's checks of each; that of array-API input needs SCIPY_ARRAY_API set before scipy is loaded."""
    estimators = [
        PriorCalibratedClassifier(),
        PriorCalibratedClassifier(make_pipeline(StandardScaler(), LogisticRegression())),
        BALANCED,
        GIRBCalibrator(),
        FEW_GROUPS,
    ]
    marked = parametrize_with_checks(estimators, expected_failed_checks=cannot_pass)
    return [case for case in marked.args[1] if "array_api" not in repr(case)]


@pytest.mark.parametrize(("estimator", "check"), checks(), ids=_get_check_estimator_ids)
def test_scikit_learn_takes_the_estimator(estimator: Any, check: Callable[[Any], None]) -> None:
    check(estimator)


def loaded_by(statement: str) -> set[str]:
    code = f"{statement}\nimport sys\nprint(*sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(said.stdout.split())


def test_nothing_else_loads_the_extras() -> None:
    modules = loaded_by("import streamcal, streamcal.cli.app, streamcal.engine")
    assert not modules & {"sklearn", "streamcal.sklearn", "streamcal.river"}


def test_without_scikit_learn_one_sentence_says_what_to_install() -> None:
    code = "import sys\nsys.modules['sklearn'] = None\nimport streamcal.sklearn"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert said.returncode == 1
    assert said.stderr.rstrip().endswith(
        "streamcal.sklearn needs scikit-learn: pip install 'streamcal-monitor[sklearn]'"
    )
