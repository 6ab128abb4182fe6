// The upper tail of the normal distribution in single precision, for the exact GELU on every
// device.
#pragma once

namespace crest {

// P(X > x) = t q(t) exp(-x^2 / 2) with t = 1 / (1 + normal_tail_scale x) for 0 <= x <= 14. q is
// evaluated by Horner's rule, highest power first. It is the polynomial through the Chebyshev nodes
// of studies/normal_tail/fit.py: relative error 1.8e-8, in fp32 3.6e-7.
inline constexpr float normal_tail_scale = 0.35f;
inline constexpr int normal_tail_terms = 9;
inline constexpr float normal_tail[normal_tail_terms] = {-0.029679522f, 0.14654583f,   -0.26096123f,
                                                         0.165051f,     -0.027046608f, 0.10711459f,
                                                         0.11944492f,   0.1399123f,    0.13961871f};

}  // namespace crest
