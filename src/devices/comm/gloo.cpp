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
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/config.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>

#include <algorithm>

#include "comm/exchange.h"
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
  GlooCommunicator(Control& control, int rank, int ranks, const std::string& group, double seconds)
      : control_(control), group_(group), seconds_(seconds), timeout_(int64_t(seconds * 1e3)) {
    guarded("start", [&] {
      gloo::transport::tcp::attr attr(control.address().c_str());
      std::shared_ptr<gloo::transport::Device> device = gloo::transport::tcp::CreateDevice(attr);
      auto context = std::make_shared<gloo::rendezvous::Context>(rank, ranks);
      context->setTimeout(timeout_);
      ControlStore store(control, "gloo/" + group + "/", seconds);
      context->connectFullMesh(store, device);
      context_ = context;
    });
  }
  int rank() const override { return context_->rank; }
  int size() const override { return context_->size; }

  std::unique_ptr<Communicator> split(const std::vector<int>& members) override {
    std::string group = fmt::format("{}.{}.{}", group_, splits_++, members.at(0));
    return std::make_unique<GlooCommunicator>(control_, place_in(members, rank()), int(members.size()), group,
                                              seconds_);
  }

  void all_reduce(void* data, DType dtype, int64_t n, bool mean) override {
    if (n == 0 || size() == 1) return;
    auto chunk = [&](int r) { return Chunk{n * r / size(), n * (r + 1) / size()}; };
    guarded("all-reduce", [&] {
      exchange_and_sum(static_cast<char*>(data), nullptr, dtype, mean, (n + size() - 1) / size(), chunk);
    });
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
    auto chunk = [&](int r) { return Chunk{n * r, n * (r + 1)}; };
    guarded("reduce-scatter",
            [&] { exchange_and_sum(static_cast<char*>(in), static_cast<char*>(out), dtype, false, n, chunk); });
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

  struct Chunk {
    int64_t begin, end;  // elements
  };

  // Rank r sums chunk(r) of all ranks' `data` in rank order. Gloo's own algorithms add in an order
  // that depends on the number of ranks and on the position. out: where this rank's sum goes; null:
  // the sums replace `data` on all ranks. Chunks (of at most `most` elements) are sent in segments:
  // one is summed while the next is on its way. Every rank sends as many bytes as in a ring.
  template <class F>
  void exchange_and_sum(char* data, char* out, DType dtype, bool mean, int64_t most, F chunk) {
    const int ranks = size(), self = rank();
    const size_t element = size_of(dtype), segment = largest_segment / element;
    const size_t bytes = size_t(chunk(ranks - 1).end) * element;
    const size_t segments = (size_t(most) + segment - 1) / segment, room = std::min(segment, size_t(most)) * element;
    struct Place {
      size_t offset, bytes;
    };
    // Segment i of the chunk of rank r.
    auto place = [&](size_t i, int r) {
      Chunk c = chunk(r);
      size_t length = size_t(c.end - c.begin), first = std::min(i * segment, length);
      return Place{(size_t(c.begin) + first) * element, std::min(segment, length - first) * element};
    };
    auto for_others = [&](auto f) {
      for (int step = 1; step < ranks; ++step) f((self + step) % ranks);
    };
    using Buffer = std::unique_ptr<gloo::transport::UnboundBuffer>;
    Buffer sent[2], arrivals[2], sums = context_->createUnboundBuffer(data, bytes);
    for (int i = 0; i < 2; ++i) {
      arrived_[i].resize(room * size_t(ranks));
      arrivals[i] = context_->createUnboundBuffer(arrived_[i].data(), arrived_[i].size());
      sent[i] = context_->createUnboundBuffer(data, bytes);
    }
    auto post = [&](size_t i) {
      for_others([&](int r) {
        Place mine = place(i, self), theirs = place(i, r);
        if (mine.bytes) arrivals[i % 2]->recv(r, slot + 1 + i % 2, room * size_t(r), mine.bytes);
        if (theirs.bytes) sent[i % 2]->send(r, slot + 1 + i % 2, theirs.offset, theirs.bytes);
      });
    };
    std::vector<const void*> parts(static_cast<size_t>(ranks));
    post(0);
    for (size_t i = 0; i < segments; ++i) {
      if (i + 1 < segments) post(i + 1);
      const Place mine = place(i, self);
      for_others([&](int r) {
        if (mine.bytes) arrivals[i % 2]->waitRecv(timeout_);
        if (place(i, r).bytes) sent[i % 2]->waitSend(timeout_);
      });
      for (int r = 0; r < ranks; ++r) parts[size_t(r)] = arrived_[i % 2].data() + room * size_t(r);
      parts[size_t(self)] = data + mine.offset;
      char* to = out ? out + i * segment * element : data + mine.offset;
      sum_in_order(to, parts, dtype, int64_t(mine.bytes / element), mean);
      if (out) continue;
      for_others([&](int r) {
        if (Place theirs = place(i, r); theirs.bytes) sums->recv(r, slot + 3, theirs.offset, theirs.bytes);
        if (mine.bytes) sums->send(r, slot + 3, mine.offset, mine.bytes);
      });
      for_others([&](int r) {
        if (place(i, r).bytes) sums->waitRecv(timeout_);
        if (mine.bytes) sums->waitSend(timeout_);
      });
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
  std::string group_;
  int splits_ = 0;
  double seconds_;
  Milliseconds timeout_;
  std::shared_ptr<gloo::Context> context_;
  std::vector<char> arrived_[2];  // segments that exchange_and_sum() receives, by rank
};

}  // namespace

std::string gloo_problem() { return ""; }
std::string gloo_version() {
  return fmt::format("{}.{}.{}", GLOO_VERSION_MAJOR, GLOO_VERSION_MINOR, GLOO_VERSION_PATCH);
}

std::unique_ptr<Communicator> make_gloo_communicator(Control& control, int ranks, const std::string& group,
                                                     double seconds) {
  return std::make_unique<GlooCommunicator>(control, control.rank(), ranks, group, seconds);
}

}  // namespace crest
#endif
