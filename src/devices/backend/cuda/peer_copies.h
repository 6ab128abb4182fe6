// Exchanges between processes of one host by copy engines. No multiprocessor takes part, so
// products run at full speed meanwhile. A rank maps the memory of the others (CUDA IPC) and pulls.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace crest::cuda {

class PeerCopies {
 public:
  // What each rank gives, in rank order. All ranks call it together, on the stream of pull().
  using Gather = std::function<std::vector<std::string>(const std::string& own)>;

  PeerCopies(int rank, int ranks, Gather gather) : rank_(rank), ranks_(ranks), gather_(std::move(gather)) {}
  ~PeerCopies();
  PeerCopies(const PeerCopies&) = delete;

  // Copies what rank `from` has at this place of its memory, as an address here. False, on all
  // ranks, and nothing was done: their memory cannot be mapped, or this is the first exchange in an
  // allocation and is captured. All ranks have allocated alike. They use one stream at a time.
  bool pull(void* stream, const void* place, void* in, int from, int64_t bytes);
  // A barrier of the ranks' streams (Communicator::arrive_at).
  void arrive(void* stream, int flag);
  void wait(void* stream, int flag);
  // Before memory is freed: the address that its allocation returned. Whether others may have
  // mapped it: they must have forgotten it first.
  bool forget(const void* allocation);
  bool started() const { return started_; }

 private:
  using Mapped = std::vector<char*>;  // by rank; empty: it cannot be mapped

  const Mapped& mapped(char* base);
  void unmap(Mapped& m) const;
  bool is_usable(void* stream);

  int rank_, ranks_;
  Gather gather_;
  std::map<const char*, Mapped> allocations_;  // by beginning
  uint32_t* flags_ = nullptr;
  bool started_ = false, usable_ = false;
};

}  // namespace crest::cuda
