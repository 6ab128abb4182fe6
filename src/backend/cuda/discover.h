// Finding GPUs.
#pragma once
#include <string>
#include <vector>

#include "backend/backend.h"

namespace crest::cuda {

struct Found {
  std::vector<Device> devices;  // threads and memory of the host are not filled in
  std::string problem;          // why there is none; empty otherwise
  std::string advice;
  int driver = 0, runtime = 0;  // CUDA versions: 13000 is 13.0
};
Found find_devices();

// Free memory of a GPU less what the context, code, library handles and graphs may take. Makes the context.
int64_t usable_memory(int index);

// Free bytes of a GPU now.
int64_t free_memory(int index);

// A description of an H200 for planning on machines without one.
Device describe_h200();

}  // namespace crest::cuda
