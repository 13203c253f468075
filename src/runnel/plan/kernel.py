from runnel.kernel import Number as Number, inlined as inlined, kernel as kernel, lowest_bit as lowest_bit, prefetch as prefetch
