// Parallel work on many tensors, for reading and writing checkpoints.
#pragma once
#include <cstddef>
#include <cstdint>
#include <exception>

namespace crest {

// Calls body(i) for all i, in parallel (below a few MB in total, a parallel region costs more than
// it saves). After all are done, throws the error of the lowest i.
template <class Body>
void for_each_tensor(size_t count, uint64_t total_bytes, Body body) {
  std::exception_ptr first;
  size_t first_index = count;
#pragma omp parallel for schedule(dynamic) if (total_bytes > (4u << 20))
  for (size_t i = 0; i < count; ++i) {
    try {
      body(i);
    } catch (...) {
#pragma omp critical(crest_tensor_error)
      if (i < first_index) first = std::current_exception(), first_index = i;
    }
  }
  if (first) std::rethrow_exception(first);
}

}  // namespace crest
