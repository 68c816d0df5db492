// Rows, or other tasks, shared by the threads of PyTorch's own pool: it loaded its OpenMP runtime for all libraries to use.

#pragma once
#include <cstdint>

template <class Body>
void parallel_rows(int64_t rows, int threads, Body body) {
#pragma omp parallel for schedule(dynamic) num_threads(threads) if (rows > 1)
    for (int64_t row = 0; row < rows; row++) body(row);
}
