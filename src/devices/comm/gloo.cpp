#include "comm/gloo.h"

#include <fmt/format.h>

namespace crest {

#ifndef CREST_HAVE_GLOO

std::string gloo_problem() {
  return "this build of Crest has no Gloo: install the package libgloo-dev (apt-get install libgloo-dev) and build "
         "again";
}

std::string gloo_version() { return ""; }

std::unique_ptr<Communicator> make_gloo_communicator(Control&, int, const std::string&, double, double) {
  fail(gloo_problem());
}

}  // namespace crest

#else
}  // namespace crest

#include <gloo/config.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <optional>
#include <vector>

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

// Waits that another thread can end with a reason.
class Interruptible {
 public:
  using Buffer = gloo::transport::UnboundBuffer;
  void add(Buffer& buffer) {
    std::lock_guard lock(mutex_);
    waiting_.push_back(&buffer);
    if (lost_) abort(buffer);
  }
  void remove(Buffer& buffer) {
    std::lock_guard lock(mutex_);
    std::erase(waiting_, &buffer);
  }
  void interrupt(const PeerLost& lost) {
    std::lock_guard lock(mutex_);
    if (!lost_) lost_.emplace(lost);
    for (Buffer* b : waiting_) abort(*b);
    interrupted_ = true;
  }
  void check(const char* where) {
    if (!interrupted_) return;
    std::lock_guard lock(mutex_);
    throw PeerLost(lost_->rank(), lost_->problem(), where, lost_->advice());
  }

 private:
  static void abort(Buffer& buffer) { buffer.abortWaitRecv(), buffer.abortWaitSend(); }

  std::mutex mutex_;
  std::vector<Buffer*> waiting_;
  std::optional<PeerLost> lost_;
  std::atomic<bool> interrupted_ = false;
};

// A collective's memory, as source and target of messages.
class Messages {
 public:
  Messages(gloo::Context& context, Interruptible& waits, void* data, size_t bytes, Milliseconds timeout)
      : waits_(waits), buffer_(context.createUnboundBuffer(data, bytes)), timeout_(timeout) {
    waits_.add(*buffer_);
  }
  ~Messages() { waits_.remove(*buffer_); }
  Messages(const Messages&) = delete;
  Messages& operator=(const Messages&) = delete;

  void send(int to, uint64_t slot, size_t offset, size_t bytes) { buffer_->send(to, slot, offset, bytes); }
  void receive(int from, uint64_t slot, size_t offset, size_t bytes) { buffer_->recv(from, slot, offset, bytes); }
  // Waits for as many as were started.
  void sent(int count = 1) {
    for (int i = 0; i < count; ++i) check(buffer_->waitSend(timeout_));
  }
  void received(int count = 1) {
    for (int i = 0; i < count; ++i) check(buffer_->waitRecv(timeout_));
  }

 private:
  static void check(bool done) {
    if (!done) throw std::runtime_error("interrupted");
  }

  Interruptible& waits_;
  std::unique_ptr<gloo::transport::UnboundBuffer> buffer_;
  Milliseconds timeout_;
};

// Gloo moves the messages. Their slots have the collective's tag: if ranks make different calls,
// they wait until the control channel finds out. Without tags, Gloo would write one call's bytes
// into another's memory, or throw in its own thread and end the process.
class GlooCommunicator final : public Communicator {
 public:
  // waits: null makes a new one. A group shares the waits of its parent communicator.
  GlooCommunicator(Control& control, int rank, int ranks, const std::string& group, double seconds,
                   double start_seconds, std::shared_ptr<Interruptible> waits = nullptr)
      : control_(control),
        group_(group),
        seconds_(seconds),
        start_seconds_(start_seconds),
        timeout_(int64_t(seconds * 1e3)),
        waits_(waits ? std::move(waits) : std::make_shared<Interruptible>()) {
    guarded("start", start_seconds, [&] {
      gloo::transport::tcp::attr attr(control.address().c_str());
      std::shared_ptr<gloo::transport::Device> device = gloo::transport::tcp::CreateDevice(attr);
      auto context = std::make_shared<gloo::rendezvous::Context>(rank, ranks);
      context->setTimeout(Milliseconds(int64_t(start_seconds * 1e3 / 5)));  // pairs connect for five times as long
      ControlStore store(control, "gloo/" + group + "/", start_seconds);
      context->connectFullMesh(store, device);
      context->setTimeout(timeout_);
      context_ = context;
    });
  }
  int rank() const override { return context_->rank; }
  int size() const override { return context_->size; }

  std::unique_ptr<Communicator> split(const std::vector<int>& members) override {
    std::string group = fmt::format("{}.{}.{}", group_, splits_++, members.at(0));
    return std::make_unique<GlooCommunicator>(control_, place_in(members, rank()), int(members.size()), group, seconds_,
                                              start_seconds_, waits_);
  }

  void all_reduce(void* data, DType dtype, int64_t n, bool mean) override {
    if (n == 0 || size() == 1) return;
    auto chunk = [&](int r) { return Chunk{n * r / size(), n * (r + 1) / size()}; };
    guarded({"all-reduce", dtype, n, mean}, [&](uint64_t slot) {
      exchange_and_sum(slot, static_cast<char*>(data), nullptr, dtype, mean, (n + size() - 1) / size(), chunk);
    });
  }

  void all_gather(const void* in, void* out, DType dtype, int64_t n) override {
    if (n == 0) return;
    const size_t part = size_t(n) * size_of(dtype);
    auto* to = static_cast<char*>(out);
    if (to + part * size_t(rank()) != in) std::memcpy(to + part * size_t(rank()), in, part);
    guarded({"all-gather", dtype, n}, [&](uint64_t slot) {
      Messages parts(*context_, *waits_, out, part * size_t(size()), timeout_);
      in_pieces(part, [&](size_t offset, size_t bytes) {
        for_others([&](int r) {
          parts.receive(r, slot, part * size_t(r) + offset, bytes);
          parts.send(r, slot, part * size_t(rank()) + offset, bytes);
        });
        parts.received(size() - 1), parts.sent(size() - 1);
      });
    });
  }

  void reduce_scatter(void* in, void* out, DType dtype, int64_t n) override {
    if (n == 0) return;
    if (size() == 1) {
      std::copy_n(static_cast<const char*>(in), size_t(n) * size_of(dtype), static_cast<char*>(out));
      return;
    }
    auto chunk = [&](int r) { return Chunk{n * r, n * (r + 1)}; };
    guarded({"reduce-scatter", dtype, n}, [&](uint64_t slot) {
      exchange_and_sum(slot, static_cast<char*>(in), static_cast<char*>(out), dtype, false, n, chunk);
    });
  }

  // A binomial tree: every round doubles the number of ranks with a piece.
  void broadcast(void* data, DType dtype, int64_t n, int root) override {
    if (n == 0) return;
    const size_t all = size_t(n) * size_of(dtype);
    const int ranks = size(), own = (rank() - root + ranks) % ranks;
    auto rank_of = [&](int place) { return (place + root) % ranks; };
    guarded({"broadcast", dtype, n, root}, [&](uint64_t slot) {
      Messages message(*context_, *waits_, data, all, timeout_);
      in_pieces(all, [&](size_t offset, size_t bytes) {
        int sends = 0;
        for (int have = 1; have < ranks; have *= 2) {
          if (own < have && own + have < ranks)
            message.send(rank_of(own + have), slot, offset, bytes), ++sends;
          else if (own >= have && own < 2 * have)
            message.receive(rank_of(own - have), slot, offset, bytes), message.received();
        }
        message.sent(sends);
      });
    });
  }

  void send_receive(const void* out, int to, void* in, int from, int64_t bytes) override {
    if (bytes == 0) return;
    if (to == rank() && from == rank()) {
      std::copy_n(static_cast<const char*>(out), size_t(bytes), static_cast<char*>(in));
      return;
    }
    guarded({"send and receive", DType::u8, bytes}, [&](uint64_t slot) {
      Messages source(*context_, *waits_, const_cast<void*>(out), size_t(bytes), timeout_);
      Messages target(*context_, *waits_, in, size_t(bytes), timeout_);
      size_t segments = (size_t(bytes) + largest_segment - 1) / largest_segment;
      auto post = [&](size_t i) {
        size_t offset = i * largest_segment, n = std::min(largest_segment, size_t(bytes) - offset);
        target.receive(from, slot + i % 2, offset, n);
        source.send(to, slot + i % 2, offset, n);
      };
      post(0);
      for (size_t i = 0; i < segments; ++i) {
        if (i + 1 < segments) post(i + 1);
        target.received(), source.sent();
        control_.activity().moved();
      }
    });
  }

  void send(const void* data, int64_t bytes, int to) override {
    transfer(bytes, [&](uint64_t slot) {
      Messages source(*context_, *waits_, const_cast<void*>(data), size_t(bytes), timeout_);
      in_pieces(size_t(bytes), [&](size_t offset, size_t n) { source.send(to, slot, offset, n), source.sent(); });
    });
  }
  void receive(void* data, int64_t bytes, int from) override {
    transfer(bytes, [&](uint64_t slot) {
      Messages target(*context_, *waits_, data, size_t(bytes), timeout_);
      in_pieces(size_t(bytes),
                [&](size_t offset, size_t n) { target.receive(from, slot, offset, n), target.received(); });
    });
  }

  // Every round doubles the number of ranks known to each rank.
  void barrier() override {
    const int ranks = size();
    guarded({"barrier"}, [&](uint64_t slot) {
      char bytes[2] = {};
      Messages message(*context_, *waits_, bytes, sizeof bytes, timeout_);
      for (int known = 1; known < ranks; known *= 2, ++slot) {
        message.receive((rank() - known % ranks + ranks) % ranks, slot, 0, 1);
        message.send((rank() + known) % ranks, slot, 1, 1);
        message.received(), message.sent();
      }
    });
  }

  void interrupt(const PeerLost& lost) override { waits_->interrupt(lost); }
  void check() override { waits_->check("computing"); }

 private:
  static constexpr size_t largest_segment = size_t(1) << 20;  // bytes per message: one is summed while the next arrives
  static constexpr size_t largest_piece = size_t(16) << 20;   // of a message without a sum

  struct Chunk {
    int64_t begin, end;  // elements
  };

  template <class F>
  void for_others(F f) const {
    for (int step = 1; step < size(); ++step) f((rank() + step) % size());
  }
  template <class F>
  void in_pieces(size_t all, F f) {
    for (size_t offset = 0; offset < all; offset += largest_piece) {
      f(offset, std::min(largest_piece, all - offset));
      control_.activity().moved();
    }
  }

  // Rank r sums chunk(r) of all ranks' `data` in rank order. Gloo's own algorithms add in another
  // order, depending on position and number of ranks. out: destination of this rank's sum; null:
  // the sums replace `data` on all ranks. Chunks (of at most `most` elements) are sent in segments:
  // one is summed while the next arrives. Every rank sends as many bytes as in a ring.
  template <class F>
  void exchange_and_sum(uint64_t slot, char* data, char* out, DType dtype, bool mean, int64_t most, F chunk) {
    const int ranks = size(), self = rank();
    const size_t element = size_of(dtype), segment = largest_segment / element;
    const size_t bytes = size_t(chunk(ranks - 1).end) * element;
    const size_t segments = (size_t(most) + segment - 1) / segment, room = std::min(segment, size_t(most)) * element;
    struct Place {
      size_t offset, bytes;
    };
    // Segment i of rank r's chunk.
    auto place = [&](size_t i, int r) {
      Chunk c = chunk(r);
      size_t length = size_t(c.end - c.begin), first = std::min(i * segment, length);
      return Place{(size_t(c.begin) + first) * element, std::min(segment, length - first) * element};
    };
    for (auto& arrived : arrived_) arrived.resize(room * size_t(ranks));
    Messages sums(*context_, *waits_, data, bytes, timeout_);
    Messages sent[] = {{*context_, *waits_, data, bytes, timeout_}, {*context_, *waits_, data, bytes, timeout_}};
    Messages arrivals[] = {{*context_, *waits_, arrived_[0].data(), arrived_[0].size(), timeout_},
                           {*context_, *waits_, arrived_[1].data(), arrived_[1].size(), timeout_}};
    auto post = [&](size_t i) {
      for_others([&](int r) {
        Place mine = place(i, self), theirs = place(i, r);
        if (mine.bytes) arrivals[i % 2].receive(r, slot + i % 2, room * size_t(r), mine.bytes);
        if (theirs.bytes) sent[i % 2].send(r, slot + i % 2, theirs.offset, theirs.bytes);
      });
    };
    std::vector<const void*> parts(static_cast<size_t>(ranks));
    post(0);
    for (size_t i = 0; i < segments; ++i) {
      if (i + 1 < segments) post(i + 1);
      const Place mine = place(i, self);
      for_others([&](int r) {
        if (mine.bytes) arrivals[i % 2].received();
        if (place(i, r).bytes) sent[i % 2].sent();
      });
      for (int r = 0; r < ranks; ++r) parts[size_t(r)] = arrived_[i % 2].data() + room * size_t(r);
      parts[size_t(self)] = data + mine.offset;
      char* to = out ? out + i * segment * element : data + mine.offset;
      sum_in_order(to, parts, dtype, int64_t(mine.bytes / element), mean);
      control_.activity().moved();
      if (out) continue;
      for_others([&](int r) {
        if (Place theirs = place(i, r); theirs.bytes) sums.receive(r, slot + 2, theirs.offset, theirs.bytes);
        if (mine.bytes) sums.send(r, slot + 2, mine.offset, mine.bytes);
      });
      for_others([&](int r) {
        if (place(i, r).bytes) sums.received();
        if (mine.bytes) sums.sent();
      });
    }
  }

  // Between two ranks, which call it with as many bytes.
  template <class F>
  void transfer(int64_t bytes, F f) {
    if (bytes > 0) guarded({"transfer", DType::u8, bytes}, f);
  }

  // f: gets the first of the 256 slots of the call.
  template <class F>
  void guarded(const CollectiveCall& call, F f) {
    Activity::InCollective waits(control_.activity(), call);
    guarded(call.what, double(timeout_.count()) / 1e3, [&] { f(uint64_t(call.tag()) << 8); });
  }
  template <class F>
  void guarded(const char* what, double seconds, F f) {
    try {
      f();
    } catch (const Error&) {
      throw;
    } catch (const std::bad_alloc&) {
      throw;
    } catch (const std::exception& e) {
      waits_->check(what);
      std::string text = e.what();
      bool late = text.find("imed out") != std::string::npos || text.find("imeout") != std::string::npos;
      control_.blame(late ? fmt::format("nothing arrived for {:g} s", seconds) : "a connection between two ranks broke",
                     what);
    }
  }

  Control& control_;
  std::string group_;
  int splits_ = 0;
  double seconds_, start_seconds_;
  Milliseconds timeout_;
  std::shared_ptr<gloo::Context> context_;
  std::shared_ptr<Interruptible> waits_;
  std::vector<char> arrived_[2];  // segments received by exchange_and_sum(), by rank
};

}  // namespace

std::string gloo_problem() { return ""; }
std::string gloo_version() {
  return fmt::format("{}.{}.{}", GLOO_VERSION_MAJOR, GLOO_VERSION_MINOR, GLOO_VERSION_PATCH);
}

std::unique_ptr<Communicator> make_gloo_communicator(Control& control, int ranks, const std::string& group,
                                                     double seconds, double start_seconds) {
  return std::make_unique<GlooCommunicator>(control, control.rank(), ranks, group, seconds, start_seconds);
}

}  // namespace crest
#endif
