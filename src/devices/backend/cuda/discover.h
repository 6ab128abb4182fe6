// Finding GPUs.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/loader.h"

namespace crest::cuda {

struct Found {
  std::vector<Device> devices;  // threads and memory of the host are not filled in
  std::string problem;          // why there is none; empty otherwise
  std::string advice;
  bool outdated = false;        // it is the driver's age
  int driver = 0, runtime = 0;  // CUDA versions: 13000 is 13.0
};
Found find_devices();

// The CUDA runtime's answer about GPUs.
struct DriverAnswer {
  int driver = 0;          // CUDA version supported by the driver; 0: there is no driver
  int runtime = 0;         // CUDA version of this build
  int devices = 0;         // how many
  std::string error = {};  // of counting them; empty: none
};
// Fills in problem and advice when no GPU can be used; never the devices.
Found judge(const DriverAnswer& answer);
// Why this build's kernels cannot run on compute capability `sm` (90 for 9.0); empty if they can.
// archs: compiled for ("80,89,90a"; also PTX of the first one without a letter).
std::string no_code_for(int sm, std::string_view archs);
// What to expect of a GPU that runs PTX because the build has no kernels for it; else empty.
std::string ptx_note(int sm, std::string_view archs);
// The same for a GPU of this machine and this build.
std::string reject_device(const Device& device);

// Whether this build has kernels for one chip only ("90a"). Without the CUDA backend, which only
// plans: yes.
bool compiled_for(std::string_view arch);

// A library of CUDA used by Crest: opened, or with the reason why not, and the consequence.
struct UsedLibrary {
  const char* name;
  const Library& library;
  const char* without;
};
// cuBLASLt, cuDNN, NVRTC. Opens them.
std::vector<UsedLibrary> used_libraries();
// Of Device::note: a line for each missing library.
std::string note_of(const std::vector<UsedLibrary>& libraries);

// Memory left by a plan to context, code, library handles and graphs.
inline constexpr int64_t reserved_memory = int64_t(768) << 20;

// Free memory of a GPU less the allowance for context, code, library handles and graphs. Makes the
// context.
int64_t usable_memory(int index);

// A text unique to the GPU, on any machine.
std::string identity(int index);

// Free bytes of a GPU now.
int64_t free_memory(int index);

}  // namespace crest::cuda
