// Exponentials without the maximum
// expect: Inf in the output, NaN in the output, row error
// instead of: const float top = of_cta<true>(largest, found);
// there is: const float top = 0.f;
