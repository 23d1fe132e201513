"""Values of metrics, as a test asks for them."""

from __future__ import annotations

from collections.abc import Iterable

from pushup.metrics import Metric


def value_of(metrics: Iterable[Metric], name: str, **labels: str) -> float:
    """The value of the sample with this name, without `pushup_`, and these labels. Raises: KeyError."""
    values = {
        (sample.name, *sorted(sample.labels.items())): sample.value for family in metrics for sample in family.samples
    }
    return values[f"pushup_{name}", *sorted(labels.items())]
