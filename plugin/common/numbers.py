"""Number formatting and statistics that several packages share."""

from __future__ import annotations

import math

Z = 1.959963984540054  # the normal distribution's 97.5th percentile


def short(value: float) -> str:
    """A number with few significant digits, for readers: 0.17, 3.9, 52, 6,700."""
    if not math.isfinite(value):
        return "infinity" if value > 0 else str(value)
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2g}"


def wilson(right: float, judged: float) -> tuple[float, float]:
    """Wilson's 95% interval for a proportion: all p with |share - p| <= Z sqrt(p (1 - p) / n)."""
    share, z2n = right / judged, Z * Z / judged
    middle = (share + z2n / 2) / (1 + z2n)
    half = Z / (1 + z2n) * math.sqrt(share * (1 - share) / judged + z2n / (4 * judged))
    return middle - half, middle + half
