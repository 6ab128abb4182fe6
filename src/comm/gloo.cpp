#include "comm/gloo.h"

#include <fmt/format.h>

namespace crest {

#ifndef CREST_HAVE_GLOO

std::string gloo_problem() {
  return "this build of Crest has no Gloo: install the package libgloo-dev (apt-get install libgloo-dev) and build "
         "again";
}

std::string gloo_version() { return ""; }

std::unique_ptr<Communicator> make_gloo_communicator(Control&, int, const std::string&, double) {
  fail(gloo_problem());
}

}  // namespace crest

#else
}  // namespace crest

#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/config.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>

#include <algorithm>

#include "comm/reduce.h"

namespace crest {

namespace {

using Milliseconds = std::chrono::milliseconds;

// Addresses of the ranks, exchanged over the control channel.
class ControlStore final : public gloo::rendezvous::Store {
 public:
  ControlStore(Control& control, std::string prefix, double seconds)
      : control_(control), prefix_(std::move(prefix)), seconds_(seconds) {}
  void set(const std::string& key, const std::vector<char>& data) override {
    control_.set(prefix_ + key, {data.begin(), data.end()});
  }
  std::vector<char> get(const std::string& key) override {
    std::string value = control_.get(prefix_ + key, seconds_);
    return {value.begin(), value.end()};
  }
  void wait(const std::vector<std::string>& keys) override {
    for (auto& key : keys) control_.get(prefix_ + key, seconds_);
  }
  void wait(const std::vector<std::string>& keys, const Milliseconds&) override { wait(keys); }

 private:
  Control& control_;
  std::string prefix_;
  double seconds_;
};

class GlooCommunicator final : public Communicator {
 public:
  GlooCommunicator(Control& control, int ranks, const std::string& group, double seconds)
      : control_(control), timeout_(int64_t(seconds * 1e3)) {
    guarded("start", [&] {
      gloo::transport::tcp::attr attr(control.address().c_str());
      std::shared_ptr<gloo::transport::Device> device = gloo::transport::tcp::CreateDevice(attr);
      auto context = std::make_shared<gloo::rendezvous::Context>(control.rank(), ranks);
      context->setTimeout(timeout_);
      ControlStore store(control, "gloo/" + group + "/", seconds);
      context->connectFullMesh(store, device);
      context_ = context;
    });
  }
  int rank() const override { return context_->rank; }
  int size() const override { return context_->size; }

  void all_reduce(void* data, DType dtype, int64_t n, bool mean) override {
    if (n == 0) return;
    guarded("all-reduce", [&] {
      gloo::AllreduceOptions o(context_);
      // The type only sets the element size: the sum is computed here.
      if (size_of(dtype) == 8)
        o.setOutput(static_cast<double*>(data), size_t(n));
      else if (size_of(dtype) == 4)
        o.setOutput(static_cast<float*>(data), size_t(n));
      else
        o.setOutput(static_cast<uint16_t*>(data), size_t(n));
      o.setReduceFunction([dtype](void* out, const void* a, const void* b, size_t count) {
        add_elements(out, a, b, dtype, int64_t(count));
      });
      gloo::allreduce(o);
    });
    if (mean) scale_elements(data, dtype, n, 1.0 / size());
  }

  void all_gather(const void* in, void* out, DType dtype, int64_t n) override {
    if (n == 0) return;
    size_t bytes = size_t(n) * size_of(dtype);
    guarded("all-gather", [&] {
      gloo::AllgatherOptions o(context_);
      o.setInput(static_cast<char*>(const_cast<void*>(in)), bytes);
      o.setOutput(static_cast<char*>(out), bytes * size_t(size()));
      gloo::allgather(o);
    });
  }

  void reduce_scatter(void* in, void* out, DType dtype, int64_t n) override {
    if (n == 0) return;
    if (size() == 1) {
      std::copy_n(static_cast<const char*>(in), size_t(n) * size_of(dtype), static_cast<char*>(out));
      return;
    }
    guarded("reduce-scatter", [&] { ring_reduce(static_cast<char*>(in), static_cast<char*>(out), dtype, n); });
  }

  void broadcast(void* data, DType dtype, int64_t n, int root) override {
    if (n == 0) return;
    guarded("broadcast", [&] {
      gloo::BroadcastOptions o(context_);
      o.setOutput(static_cast<char*>(data), size_t(n) * size_of(dtype));
      o.setRoot(root);
      gloo::broadcast(o);
    });
  }

  void send_receive(const void* out, int to, void* in, int from, int64_t bytes) override {
    if (bytes == 0) return;
    if (size() == 1) {
      std::copy_n(static_cast<const char*>(out), size_t(bytes), static_cast<char*>(in));
      return;
    }
    guarded("send and receive", [&] {
      auto source = context_->createUnboundBuffer(const_cast<void*>(out), size_t(bytes));
      auto target = context_->createUnboundBuffer(in, size_t(bytes));
      size_t segments = (size_t(bytes) + largest_segment - 1) / largest_segment;
      auto post = [&](size_t i) {
        size_t offset = i * largest_segment, n = std::min(largest_segment, size_t(bytes) - offset);
        target->recv(from, slot + 1 + i % 2, offset, n);
        source->send(to, slot + 1 + i % 2, offset, n);
      };
      post(0);
      for (size_t i = 0; i < segments; ++i) {
        if (i + 1 < segments) post(i + 1);
        target->waitRecv(timeout_);
        source->waitSend(timeout_);
      }
    });
  }

  void barrier() override {
    guarded("barrier", [&] {
      gloo::BarrierOptions o(context_);
      gloo::barrier(o);
    });
  }

 private:
  static constexpr uint64_t slot = uint64_t(0x43) << 56;      // Gloo's own collectives use small numbers there
  static constexpr size_t largest_segment = size_t(1) << 20;  // bytes per message: one is summed while the next arrives

  // Gloo's reduce-scatter needs a power of two. This is the first half of a ring all-reduce: in
  // step s every rank sends chunk rank - 1 - s to the right, and adds what comes from the left to
  // chunk rank - 2 - s; after size - 1 steps, chunk `rank` has visited all ranks. Chunks are sent
  // in segments, two at a time.
  void ring_reduce(char* in, char* out, DType dtype, int64_t n) {
    int ranks = size(), right = (rank() + 1) % ranks, left = (rank() + ranks - 1) % ranks;
    size_t element = size_of(dtype), chunk = size_t(n) * element;
    size_t segment = std::min(chunk, largest_segment), segments = (chunk + segment - 1) / segment;
    size_t total = size_t(ranks - 1) * segments;
    auto all = context_->createUnboundBuffer(in, chunk * size_t(ranks));
    arrived_[0].resize(segment), arrived_[1].resize(segment);
    std::unique_ptr<gloo::transport::UnboundBuffer> arrivals[2];
    for (int i = 0; i < 2; ++i) arrivals[i] = context_->createUnboundBuffer(arrived_[i].data(), segment);
    // Where segment i of a step's chunk begins, and its bytes. `back`: 1 for the segment sent, 2
    // for the one received.
    auto place = [&](size_t i, size_t back) {
      size_t whose = (size_t(rank()) + 2 * size_t(ranks) - back - i / segments) % size_t(ranks);
      size_t offset = i % segments * segment;
      return std::pair(whose * chunk + offset, std::min(segment, chunk - offset));
    };
    auto post = [&](size_t i) {
      arrivals[i % 2]->recv(left, slot + 1 + i % 2, 0, place(i, 2).second);
      auto [offset, bytes] = place(i, 1);
      all->send(right, slot + 1 + i % 2, offset, bytes);
    };
    post(0);
    for (size_t i = 0; i < total; ++i) {
      // With one segment per chunk, the next message is the one completed here.
      if (segments > 1 && i + 1 < total) post(i + 1);
      arrivals[i % 2]->waitRecv(timeout_);
      auto [offset, bytes] = place(i, 2);
      bool last = i / segments + 2 == size_t(ranks);  // step: its sum is the result
      char* sum = last ? out + offset - size_t(rank()) * chunk : in + offset;
      add_elements(sum, in + offset, arrived_[i % 2].data(), dtype, int64_t(bytes / element));
      all->waitSend(timeout_);
      if (segments == 1 && i + 1 < total) post(i + 1);
    }
  }

  template <class F>
  void guarded(const char* what, F f) {
    try {
      f();
    } catch (const Error&) {
      throw;
    } catch (const std::bad_alloc&) {
      throw;
    } catch (const std::exception& e) {
      bool late = std::string(e.what()).find("Timed out") != std::string::npos;
      control_.blame(late ? fmt::format("nothing arrived for {:g} s", double(timeout_.count()) / 1e3)
                          : "a connection between two ranks broke",
                     what);
    }
  }

  Control& control_;
  Milliseconds timeout_;
  std::shared_ptr<gloo::Context> context_;
  std::vector<char> arrived_[2];  // segments that ring_reduce() receives
};

}  // namespace

std::string gloo_problem() { return ""; }
std::string gloo_version() {
  return fmt::format("{}.{}.{}", GLOO_VERSION_MAJOR, GLOO_VERSION_MINOR, GLOO_VERSION_PATCH);
}

std::unique_ptr<Communicator> make_gloo_communicator(Control& control, int ranks, const std::string& group,
                                                     double seconds) {
  return std::make_unique<GlooCommunicator>(control, ranks, group, seconds);
}

}  // namespace crest
#endif
