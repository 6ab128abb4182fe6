#include "comm/comm.h"

namespace crest {

PeerLost::PeerLost(int rank, std::string what, std::string where, std::string advice)
    : Error(Exit::failed, std::move(what), std::move(where), std::move(advice)), rank_(rank) {}

std::unique_ptr<Communicator> Communicator::split(const std::vector<int>&) {
  fail_internal("this communicator has no groups");
}

// In round k every rank sends to the one k places further. Round 0 copies the own part.
void Communicator::all_to_all(const void* in, void* out, DType dtype, int64_t n) {
  const int64_t bytes = n * int64_t(size_of(dtype));
  if (bytes == 0) return;
  for (int k = 0; k < size(); ++k) {
    const int to = (rank() + k) % size(), from = (rank() - k + size()) % size();
    send_receive(static_cast<const char*>(in) + to * bytes, to, static_cast<char*>(out) + from * bytes, from, bytes);
  }
}

void Communicator::send(const void*, int64_t, int) { fail_internal("this communicator sends nothing to single ranks"); }
void Communicator::receive(void*, int64_t, int) {
  fail_internal("this communicator receives nothing from single ranks");
}

}  // namespace crest
