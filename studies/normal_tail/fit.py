"""The polynomial of src/base/core/normal_tail.h: P(X > x) = t q(t) exp(-x^2 / 2), t = 1 / (1 + c x), for the exact GELU.

q is fitted through Chebyshev nodes over 0 <= x <= 14 for some c and numbers of terms; printed with the relative error of
the fit and of its evaluation in fp32. Needs mpmath, NumPy, SciPy:  python studies/normal_tail/fit.py
"""
import mpmath
import numpy
from scipy.special import erfcx

mpmath.mp.dps = 40
X = numpy.linspace(0, 14, 400001).astype(numpy.float32)
EXACT = erfcx(X.astype(float) / numpy.sqrt(2)) / 2  # times exp(-x^2 / 2)

for scale in (0.3, 0.35, 0.4, 0.45, 0.5):
    def q(t):
        z = (1 / t - 1) / mpmath.mpf(scale) / mpmath.sqrt(2)
        return mpmath.exp(z * z) * mpmath.erfc(z) / 2 / t
    for terms in (7, 8, 9, 10):
        polynomial, error = mpmath.chebyfit(q, [1 / (1 + mpmath.mpf(scale) * 14), 1], terms, error=True)
        one, c = numpy.float32(1), numpy.float32(scale)
        t = one / (one + c * X)
        value = numpy.float32(0)
        for p in polynomial:
            value = value * t + numpy.float32(float(p))
        print(f"c {scale} terms {terms}: fit {float(error):.1e}, in fp32 {numpy.max(numpy.abs(value * t / EXACT - 1)):.1e}  "
              + " ".join(f"{float(p):.9g}" for p in polynomial))
