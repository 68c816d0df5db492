// Rows, or other tasks, shared by threads that live as long as the call.

#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

template <class Body>
void parallel_rows(int64_t rows, int threads, Body body) {
    std::atomic<int64_t> next{0};
    auto work = [&] {
        for (int64_t row; (row = next++) < rows;) body(row);
    };
    std::vector<std::thread> others;
    for (int64_t i = 1; i < std::min<int64_t>(threads, rows); i++) others.emplace_back(work);
    work();
    for (auto& other : others) other.join();
}
