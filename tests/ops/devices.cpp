// Where kernels are tested, and how one is launched there.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "core/error.h"
#include "device.h"
#include "device/find.h"
#include "ops/gpu.h"
#include "ops/harness.h"
#if !CREST_HAVE_CUDA
#include "backend/cuda/device/emulator.h"
#endif

namespace crest::test {

namespace {

constexpr size_t alignment = 256, guard = 256;
constexpr uint8_t guard_byte = 0xa5;

struct Found {
  std::vector<Device> devices = {cpu()};
  Found() {
    if (!cpu().amx) devices.push_back(emulated_amx(2));
  }
  std::string why_no_gpu;
};

const Found& found() {
  static const Found found = [] {
    Found f;
#if CREST_HAVE_CUDA
    try {
      f.devices.push_back(find_device("cuda", 2));
    } catch (const Error& e) {
      f.why_no_gpu = e.what();
    }
#else
    // The emulated GPU is the same for every class of processors.
    if (!std::getenv("CREST_TEST_CLASS")) f.devices.push_back(emulated_gpu(2));
    f.why_no_gpu = "this build has no CUDA: kernels ran on the emulator";
#endif
    return f;
  }();
  return found;
}

}  // namespace

const std::vector<Device>& devices() { return found().devices; }
const std::string& why_no_gpu() { return found().why_no_gpu; }
std::string device_name(const Device& d) { return d.kind == "cpu" && d.emulated ? "emulated_cpu" : d.kind; }
bool is_gpu(const Device& device) { return device.kind == "cuda" && !device.emulated; }

// Copies of the blocks of a Memory and of the workspace on the GPU.
class BoundKernel::OnGpu {
 public:
  OnGpu(const Memory& memory, size_t scratch) : memory_(memory), scratch_(scratch) {
    for (const Memory::Block& b : memory.blocks()) buffers_.emplace_back(b.size);
  }
  // The device address of memory at `host`.
  void* at(const void* host) const {
    auto blocks = memory_.blocks();
    for (size_t i = 0; i < blocks.size(); ++i) {
      auto* p = static_cast<const uint8_t*>(host);
      if (p >= blocks[i].data && p < blocks[i].data + blocks[i].size)
        return static_cast<uint8_t*>(buffers_[i].data()) + (p - blocks[i].data);
    }
    fail_internal("an address outside of the test's memory");
  }
  void* scratch() const { return scratch_.data(); }
  void upload(const void* host_scratch) {
    auto blocks = memory_.blocks();
    for (size_t i = 0; i < blocks.size(); ++i) buffers_[i].upload(blocks[i].data, blocks[i].size);
    scratch_.upload(host_scratch, scratch_.size());
  }
  void download(void* host_scratch) const {
    auto blocks = memory_.blocks();
    for (size_t i = 0; i < blocks.size(); ++i) buffers_[i].download(blocks[i].data, blocks[i].size);
    scratch_.download(host_scratch, scratch_.size());
  }

 private:
  const Memory& memory_;
  std::vector<gpu::Buffer> buffers_;
  gpu::Buffer scratch_;
};

// Scratch is poisoned and guarded on its far side; its start is aligned as the executor aligns it.
BoundKernel::BoundKernel(const Kernel& kernel, const Device& device, const Program& program, const Instr& instr,
                         const Memory& memory)
    : kernel_(kernel),
      device_(device),
      program_(program),
      instr_(instr),
      memory_(memory),
      rank_({{axes_of(instr).has(Axis::context) ? Axis::context : Axis::tensor,
              int(program.properties.integer("ranks", 1))}},
            int(program.properties.integer("rank", 0))) {
  KernelQuery query{program, instr, device};
  scratch_size_ = kernel.workspace ? kernel.workspace(query) : 0;
  scratch_.assign(scratch_size_ + guard + alignment, 0xff);
  std::memset(scratch() + scratch_size_, guard_byte, guard);
  prepared_ = kernel.prepare ? kernel.prepare(query) : nullptr;
  if (is_gpu(device)) gpu_ = std::make_unique<OnGpu>(memory, scratch_size_ + guard);
  auto address = [&](ValueId v) { return gpu_ ? gpu_->at(memory.at(v)) : memory.at(v); };
  for (ValueId v : instr.in) in_.push_back(v == no_value ? nullptr : address(v));
  for (ValueId v : instr.out) out_.push_back(address(v));
}

BoundKernel::~BoundKernel() = default;

uint8_t* BoundKernel::scratch() {
  return reinterpret_cast<uint8_t*>((reinterpret_cast<uintptr_t>(scratch_.data()) + alignment - 1) / alignment *
                                    alignment);
}

bool BoundKernel::scratch_guard_intact() {
  const uint8_t* end = scratch() + scratch_size_;
  return std::all_of(end, end + guard, [](uint8_t b) { return b == guard_byte; });
}

KernelCall BoundKernel::call() {
  void* workspace = !scratch_size_ ? nullptr : gpu_ ? gpu_->scratch() : scratch();
  return {program_,        instr_,         in_.data(),
          out_.data(),     workspace,      prepared_.get(),
          device_.threads, rank_.groups(), gpu_ ? gpu::stream() : nullptr,
          &device_};
}

void BoundKernel::launch() {
#if !CREST_HAVE_CUDA
  cuda::emulator::set_order(launches_++);
#endif
  if (gpu_) gpu_->upload(scratch());
  kernel_.launch(call());
  if (gpu_) {
    gpu::synchronize(kernel_.name);
    gpu_->download(scratch());
  }
  if (!scratch_guard_intact()) fail_internal(std::string(kernel_.name) + " wrote beyond its workspace");
}

void BoundKernel::tune() {
  if (!kernel_.tune) return;
  if (!gpu_) fail_internal("only a GPU can tune");
  gpu_->upload(scratch());
  kernel_.tune(call());
  gpu::synchronize(kernel_.name);
}

void launch(const Kernel& kernel, const Device& device, const Program& program, const Instr& instr,
            const Memory& memory) {
  BoundKernel(kernel, device, program, instr, memory).launch();
}

}  // namespace crest::test
