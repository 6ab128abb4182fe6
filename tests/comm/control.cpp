// Ranks find each other. If one does not come, is lost, or hangs, the others report it.
#include "comm/control.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <future>
#include <latch>
#include <map>
#include <mutex>
#include <sstream>
#include <thread>

#include "comm/control_server.h"
#include "comm/gloo.h"
#include "comm/secret.h"
#include "comm/watchdog.h"
#include "core/temporary_folder.h"
#include "loopback.h"
#include "ranks.h"
#include "wait.h"

namespace crest::test {

namespace {

void pause_until_readable(const Socket& socket) {
  pollfd p = {socket.fd(), POLLIN, 0};
  poll(&p, 1, int(1e3 * longest_wait));
}

}  // namespace

TEST(Control, ValuesReachThoseThatWaitForThem) {
  NEEDS_LOOPBACK();
  auto errors = with_ranks(3, [](Control& control) {
    if (control.rank() == 2) control.set("key", std::string("a\0b", 3));
    EXPECT_EQ(control.get("key", longest_wait), std::string("a\0b", 3));
    control.check("here");
    EXPECT_EQ(control.address(), "127.0.0.1");
  });
  for (auto& e : errors) EXPECT_EQ(e, "");
}

TEST(Control, ARankThatNeverComesIsNamed) {
  NEEDS_LOOPBACK();
  std::string first, second, said;
  for (double seconds = 0.25; seconds < 300; seconds *= 4) {
    Socket listener = listen_on("127.0.0.1", 0);
    int port = port_of(listener);
    auto other = std::async(std::launch::async, [&, seconds] {
      return error_of([&] { Control::join(environment(2, 3, port), seconds); });
    });
    first = error_of([&] { Control::join(environment(0, 3, port), seconds, std::move(listener)); });
    second = other.get();
    std::ostringstream text;
    text << "rank 1 did not start within " << seconds << " s (2 of 3 did)";
    said = text.str();
    if (first.find("(1 of 3 did)") == std::string::npos) break;  // else rank 2 was held up: more time for both
  }
  for (auto& e : {first, second}) expect_says(e, said);
}

// Ranks refused by rank 0 are missing for a reason.
TEST(Control, AnotherSecretOrNumberOfRanksIsToldByRank0) {
  NEEDS_LOOPBACK();
  std::string first, second, third;
  for (double seconds = 0.25; seconds < 300; seconds *= 4) {
    Socket listener = listen_on("127.0.0.1", 0);
    int port = port_of(listener);
    auto join = [seconds](const RankEnvironment& own, Socket socket, const std::string& secret) {
      return error_of([&] { Control::join(own, seconds, std::move(socket), {secret}); });
    };
    auto others = std::async(std::launch::async, [&] {
      second = join(environment(1, 3, port), Socket(), "another");
      third = join(environment(2, 4, port), Socket(), "the secret");
    });
    first = join(environment(0, 3, port), std::move(listener), "the secret");
    others.get();
    if (third.find("different") != std::string::npos) break;  // else they were held up: more time
  }
  expect_says(first, "ranks 1, 2 did not start within ");
  expect_says(first, "rank 1 was started with another secret than rank 0");
  for (auto& e : {first, third})
    expect_says(e, "rank 2 was started with a different number of ranks (4) than rank 0 (3)");
  expect_says(second, "rank 0 does not know the secret of this rank");
}

// The system still accepts connections for the stopped process, but nobody answers.
TEST(Control, ARank0ThatIsStoppedSaysSo) {
  NEEDS_LOOPBACK();
  Socket listener = listen_on("127.0.0.1", 0);
  std::string error = error_of([&] { Control::join(environment(1, 2, port_of(listener)), 0.1); });
  expect_says(error, "rank 0 has not answered for 0.1 s");
  expect_says(error, "It was stopped");
}

TEST(Control, ARankWithoutRank0SaysSo) {
  NEEDS_LOOPBACK();
  Socket listener = listen_on("127.0.0.1", 0);
  int port = port_of(listener);
  listener.close();
  expect_says(error_of([&] { Control::join(environment(1, 2, port), 0.3); }), "rank 0 did not start within 0.3 s");
}

TEST(Control, AnotherNumberOfRanksAndASecondRankAreRefused) {
  NEEDS_LOOPBACK();
  Socket listener = listen_on("127.0.0.1", 0);
  int port = port_of(listener);
  auto first = std::async(std::launch::async, [&, l = std::move(listener)]() mutable {
    return error_of([&] { Control::join(environment(0, 2, port), longest_wait, std::move(l)); });
  });
  expect_says(error_of([&] { Control::join(environment(1, 3, port), longest_wait); }),
              "rank 1 was started with a different number");
  expect_says(error_of([&] { Control::join(environment(0, 2, port), longest_wait); }), "cannot listen on port");
  EXPECT_EQ(error_of([&] { Control::join(environment(1, 2, port), longest_wait); }), "") << "the right one";
  EXPECT_EQ(first.get(), "") << "those that were refused did not disturb it";
}

TEST(Control, APortInUseIsNamed) {
  NEEDS_LOOPBACK();
  Socket listener = listen_on("127.0.0.1", 0);
  std::string e = error_of([&] { listen_on("127.0.0.1", port_of(listener)); });
  expect_says(e, std::to_string(port_of(listener)));
  expect_says(e, "in use");
}

// A stopped program with a full queue, or a firewall: connect() alone would wait for minutes.
TEST(Control, AnAddressThatDoesNotAnswerIsGivenUpInTime) {
  NEEDS_LOOPBACK();
  Socket full = listen_on("127.0.0.1", 0);
  ASSERT_EQ(listen(full.fd(), 0), 0);
  std::vector<Socket> waiting;
  do {
    ASSERT_LT(waiting.size(), 100u);
    waiting.push_back(connect_to("127.0.0.1", port_of(full), after(0.05)).socket);
  } while (waiting.back().is_open());
  const auto start = Clock::now();
  const std::string e = error_of([&] { Control::join(environment(1, 2, port_of(full)), 0.2); });
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(20));
  expect_says(e, "nobody answers there");
}

TEST(Control, GarbageOnThePortDoesNotDisturb) {
  NEEDS_LOOPBACK();
  Socket listener = listen_on("127.0.0.1", 0);
  int port = port_of(listener);
  auto second = std::async(std::launch::async, [&] {
    for (const std::string& text :
         {std::string("GET / HTTP/1.0\r\n\r\n"), std::string(100'000, '\xff'), std::string()}) {
      Socket s = connect_to("127.0.0.1", port, after(longest_wait)).socket;
      send_all(s, text);
    }
    return error_of([&] { Control::join(environment(1, 2, port), longest_wait); });
  });
  EXPECT_EQ(error_of([&] { Control::join(environment(0, 2, port), longest_wait, std::move(listener)); }), "");
  EXPECT_EQ(second.get(), "");
}

namespace {

// Another process with open, silent
// connections, kept until the object goes away.
class IdleStrangers {
 public:
  IdleStrangers(int port, int count) {
    EXPECT_EQ(pipe(ends_), 0);
    pid_ = fork();
    if (pid_ == 0) {
      rlimit files{};
      getrlimit(RLIMIT_NOFILE, &files);
      files.rlim_cur = files.rlim_max;
      setrlimit(RLIMIT_NOFILE, &files);
      std::vector<Socket> idle;
      int opened = 0;
      for (; opened < count; ++opened) {
        Socket s = connect_to("127.0.0.1", port, after(longest_wait)).socket;
        if (!s.is_open()) break;
        idle.push_back(std::move(s));
      }
      if (write(ends_[1], &opened, sizeof opened) != sizeof opened) _exit(1);
      for (;;) pause();
    }
    close(ends_[1]);
  }
  ~IdleStrangers() {
    kill(pid_, SIGKILL), waitpid(pid_, nullptr, 0);
    close(ends_[0]);
  }
  // Waits until the connections exist, and returns their number.
  int opened() const {
    int count = 0;
    EXPECT_EQ(read(ends_[0], &count, sizeof count), ssize_t(sizeof count));
    return count;
  }

 private:
  int ends_[2] = {-1, -1};
  pid_t pid_ = 0;
};

// While it lives, this process can open only this many files.
class FewDescriptors {
 public:
  explicit FewDescriptors(size_t left) {
    getrlimit(RLIMIT_NOFILE, &before_);
    rlimit low = before_;
    low.rlim_cur = std::min<rlim_t>(512, before_.rlim_max);
    setrlimit(RLIMIT_NOFILE, &low);
    for (int fd; (fd = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0;) taken_.emplace_back(fd);
    EXPECT_GT(taken_.size(), left);
    taken_.resize(taken_.size() - std::min(taken_.size(), left));
  }
  ~FewDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
  std::vector<Socket> taken_;
};

// Ranks joining on the listener's port with `strangers` open connections; their messages.
std::vector<std::string> join_among_strangers(int ranks, int strangers) {
  Socket listener = listen_on("127.0.0.1", 0);
  int port = port_of(listener);
  auto join = [ranks, port](int rank, Socket socket) {
    return error_of([&] {
      auto control = Control::join(environment(rank, ranks, port), longest_wait, std::move(socket));
      if (rank == 1) control->set("key", "value");
      EXPECT_EQ(control->get("key", longest_wait), "value");
    });
  };
  IdleStrangers idle(port, strangers);  // before there are threads
  std::vector<std::future<std::string>> all;
  all.push_back(std::async(std::launch::async, join, 0, std::move(listener)));
  EXPECT_EQ(idle.opened(), strangers);
  for (int rank = 1; rank < ranks; ++rank) all.push_back(std::async(std::launch::async, join, rank, Socket()));
  std::vector<std::string> said;
  for (auto& one : all) said.push_back(one.get());
  return said;
}

}  // namespace

TEST(Strangers, ThousandsThatSayNothingKeepNoRankOut) {
  NEEDS_LOOPBACK();
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  int count = int(std::min<rlim_t>(2000, files.rlim_max - 100));
  FewDescriptors few(120);
  for (auto& e : join_among_strangers(3, count)) EXPECT_EQ(e, "");
}

// With few descriptors left, EMFILE comes before the limit on strangers.
TEST(Strangers, DescriptorsThatRunOutKeepNoRankOut) {
  NEEDS_LOOPBACK();
  FewDescriptors few(25);
  for (auto& e : join_among_strangers(2, 200)) EXPECT_EQ(e, "");
}

TEST(Strangers, HaveATimeToIntroduceThemselves) {
  NEEDS_LOOPBACK();
  Socket listener = listen_on("127.0.0.1", 0);
  int port = port_of(listener);
  ControlServer server(std::move(listener), 2, longest_wait, {}, {64, 0.01});
  Socket s = connect_to("127.0.0.1", port, after(longest_wait)).socket;
  timeval limit{time_t(longest_wait), 0};
  setsockopt(s.fd(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  char byte = 0;
  EXPECT_EQ(recv(s.fd(), &byte, 1, 0), 0) << "closed by the server";
}

TEST(Strangers, TheOldestIsClosedFirst) {
  NEEDS_LOOPBACK();
  Socket listener = listen_on("127.0.0.1", 0);
  int port = port_of(listener);
  ControlServer server(std::move(listener), 2, longest_wait, {}, {3, longest_wait});
  std::vector<Socket> all;
  for (int i = 0; i < 5; ++i) {
    all.push_back(connect_to("127.0.0.1", port, after(longest_wait)).socket);
    timeval limit{time_t(longest_wait), 0};
    setsockopt(all.back().fd(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  }
  char byte = 0;
  for (size_t i = 0; i < 2; ++i) EXPECT_EQ(recv(all[i].fd(), &byte, 1, 0), 0) << i;
  for (size_t i = 2; i < 5; ++i) {
    EXPECT_EQ(recv(all[i].fd(), &byte, 1, MSG_DONTWAIT), -1) << i;
    send_all(all[i], encode({'H', "9 2 R", "crest-control-1 00"}));
    EXPECT_EQ(recv(all[i].fd(), &byte, 1, 0), 1) << "it still hears the answer, " << i;
  }
}

// A stranger cannot fill the memory of rank 0 either.
TEST(Strangers, ALongGreetingIsNone) {
  NEEDS_LOOPBACK();
  Socket listener = listen_on("127.0.0.1", 0);
  int port = port_of(listener);
  ControlServer server(std::move(listener), 2, longest_wait, {}, {64, longest_wait});
  Socket s = connect_to("127.0.0.1", port, after(longest_wait)).socket;
  timeval limit{time_t(longest_wait), 0};
  setsockopt(s.fd(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  std::string frame = encode({'J', std::string(100'000, 'x'), ""});
  send_all(s, frame.substr(0, 60'000));
  char byte = 0;
  EXPECT_LE(recv(s.fd(), &byte, 1, 0), 0) << "closed by the server";
}

// If a rank's connection breaks without a farewell, the rank is lost. The test joins one rank by
// hand.
TEST(Control, ARankThatIsGoneIsToldToAll) {
  NEEDS_LOOPBACK();
  Socket listener = listen_on("127.0.0.1", 0);
  int port = port_of(listener);
  auto join_and_wait = [&](int rank, Socket socket) {
    return error_of([&] {
      auto control = Control::join(environment(rank, 3, port), longest_wait, std::move(socket));
      control->get("never", longest_wait);
    });
  };
  auto second = std::async(std::launch::async, join_and_wait, 1, Socket());
  std::thread third([&] {
    Socket s = connect_to("127.0.0.1", port, after(longest_wait)).socket;
    FrameReader reader;
    Frame refusal;
    EXPECT_EQ(introduce(s, reader, {2, 3, Introduction::rank_itself, ""}, after(longest_wait), refusal),
              Greeting::done);
    Frame answer;
    while (!reader.next(answer)) {
      pause_until_readable(s);
      ASSERT_TRUE(reader.receive(s));
    }
    EXPECT_EQ(answer.type, 'A') << "all have joined";
  });
  std::string first = join_and_wait(0, std::move(listener));
  third.join();
  for (auto& e : {first, second.get()}) expect_says(e, "rank 2 is gone");
}

TEST(Control, TheRankThatIsSilentIsToBlame) {
  NEEDS_LOOPBACK();
  std::latch blamed(2);
  auto errors = with_ranks(3, [&](Control& control) {
    if (control.rank() == 1) return blamed.wait();
    std::string error = error_of([&] { control.blame("nothing came", "all-reduce"); });
    blamed.count_down();
    fail(error);
  });
  expect_says(errors[0], "rank 1 does not take part (nothing came)");
  expect_says(errors[2], "rank 1 does not take part");
  EXPECT_EQ(errors[1], "");
}

TEST(Secret, WhoDoesNotKnowItIsNotLetIn) {
  NEEDS_LOOPBACK();
  Socket listener = listen_on("127.0.0.1", 0);
  int port = port_of(listener);
  ControlServer server(std::move(listener), 2, longest_wait, {"the secret", 0});
  auto greeting = [&](int rank, const std::string& secret) {
    Socket s = connect_to("127.0.0.1", port, after(longest_wait)).socket;
    FrameReader reader;
    Frame refusal;
    return introduce(s, reader, {rank, 2, Introduction::rank_itself, secret}, after(longest_wait), refusal);
  };
  EXPECT_EQ(greeting(1, "another"), Greeting::forged) << "and a server that does not know it is not believed";
  EXPECT_EQ(greeting(1, ""), Greeting::forged);
  EXPECT_EQ(greeting(1, "the secret"), Greeting::done);
}

// A server without the secret sends a made-up proof, or another rank's proof.
TEST(Secret, AForgedOrRepeatedProofIsRefused) {
  NEEDS_LOOPBACK();
  Socket listener = listen_on("127.0.0.1", 0);
  int port = port_of(listener);
  ControlServer server(std::move(listener), 2, longest_wait, {"the secret", 0});
  std::string number(32, 'a'), earlier;
  for (bool repeated : {false, true, true}) {
    Socket s = connect_to("127.0.0.1", port, after(longest_wait)).socket;
    send_all(s, encode({'H', "1 2 R", std::string(control_magic) + " " + number}));
    FrameReader reader;
    Frame challenge;
    while (!reader.next(challenge)) ASSERT_TRUE(reader.receive(s));
    EXPECT_EQ(challenge.type, 'C');
    std::string right = proof("the secret", "1 2 R", number, challenge.key);
    send_all(s, encode({'J', "", repeated ? earlier : std::string(64, '0')}));
    timeval limit{time_t(longest_wait), 0};
    setsockopt(s.fd(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    char byte = 0;
    EXPECT_LE(recv(s.fd(), &byte, 1, 0), 0) << "closed by the server";
    earlier = right;
  }
}

TEST(Secret, AnAddressThatOthersReachNeedsOne) {
  EXPECT_TRUE(is_loopback("127.0.0.1"));
  EXPECT_TRUE(is_loopback("127.4.5.6"));
  EXPECT_TRUE(is_loopback("::1"));
  EXPECT_FALSE(is_loopback("0.0.0.0"));
  EXPECT_FALSE(is_loopback("192.0.2.7"));
}

namespace {

// CREST_SECRET_FILE names FOLDER/secret while it lives, and CREST_SECRET is not set.
class SecretFolder {
 public:
  SecretFolder() {
    unsetenv("CREST_SECRET");
    setenv("CREST_SECRET_FILE", path().c_str(), 1);
  }
  ~SecretFolder() { unsetenv("CREST_SECRET_FILE"); }
  std::string path() const { return folder_ / "secret"; }
  void write(const std::string& text, mode_t mode) const {
    Socket file(open(path().c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    EXPECT_EQ(::write(file.fd(), text.data(), text.size()), ssize_t(text.size()));
    EXPECT_EQ(fchmod(file.fd(), mode), 0);
  }
  bool exists() const { return access(path().c_str(), F_OK) == 0; }

 private:
  TemporaryFolder folder_;
};

const std::string old_secret = "of a run that was killed";

}  // namespace

TEST(SecretFile, IsWrittenByRank0AndRemovedAtTheEnd) {
  SecretFolder f;
  {
    f.write(old_secret, 0600);
    RankSecret other(environment(1, 2, 1), after(longest_wait));
    EXPECT_EQ(other.text(), old_secret);
    EXPECT_FALSE(other.wait_for_another(after(0.05)));
    RankSecret first(environment(0, 2, 1), after(longest_wait));
    struct stat file {};
    ASSERT_EQ(stat(f.path().c_str(), &file), 0);
    EXPECT_EQ(file.st_mode & 07777, 0600u);
    EXPECT_TRUE(other.wait_for_another(after(longest_wait)));
    EXPECT_EQ(other.text(), first.text());
    EXPECT_GE(first.text().size(), 32u);
    EXPECT_FALSE(first.wait_for_another(after(longest_wait))) << "it is the one who writes it";
  }
  EXPECT_FALSE(f.exists());
}

TEST(SecretFile, OfAnotherRunIsNotRemoved) {
  SecretFolder f;
  {
    RankSecret first(environment(0, 2, 1), after(longest_wait));
    unlink(f.path().c_str());
    f.write(old_secret, 0600);
  }
  EXPECT_TRUE(f.exists());
}

TEST(SecretFile, ThatOthersReadOrWroteIsRefused) {
  SecretFolder f;
  for (int rank : {0, 1}) {
    auto error = [&] { return error_of([&] { RankSecret(environment(rank, 2, 1), after(0)); }); };
    f.write(old_secret, 0640);
    expect_says(error(), "its mode is 0640");
    f.write(old_secret, 0600);
    if (geteuid() == 0) {
      ASSERT_EQ(chown(f.path().c_str(), 12345, gid_t(-1)), 0);
      expect_says(error(), "belongs to user 12345");
    }
    ASSERT_EQ(unlink(f.path().c_str()), 0);
    ASSERT_EQ(symlink("/etc/hostname", f.path().c_str()), 0);
    EXPECT_NE(error(), "") << "a link";
    ASSERT_EQ(unlink(f.path().c_str()), 0);
  }
  expect_says(error_of([&] { RankSecret(environment(1, 2, 1), after(0.05)); }), "rank 0 has not written the secret");
  f.write("short", 0600);
  expect_says(error_of([&] { RankSecret(environment(1, 2, 1), after(0)); }), "holds no secret");
}

}  // namespace crest::test
