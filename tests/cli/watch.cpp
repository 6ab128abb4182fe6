// crest watch as a process: its address, its end, its errors.
#include <arpa/inet.h>
#include <sys/socket.h>

#include "contains.h"
#include "run.h"
#include "watch/server.h"

namespace crest::test {

namespace {

class CliWatch : public testing::Test {
 protected:
  TempFolder folder_;
  RunOptions options() const { return {.folder = folder_.path().string()}; }
  void SetUp() override {
    if (!has_server()) GTEST_SKIP() << "built without libcivetweb-dev";
    std::string log;
    for (int i = 1; i < 30; ++i) log += "iter " + std::to_string(i) + ": loss 3.1415, time 123.45ms\n";
    folder_.write("train.log", log);
    ASSERT_EQ(run_crest({"runs", "import", "train.log", "--name", "imported"}, options()).code, 0);
  }
  // Runs it until `look` has seen the address that it prints.
  RunResult watch(std::vector<std::string> arguments, const std::function<void(const std::string&)>& look) {
    RunOptions o = options();
    o.output = folder_ / "url";
    o.while_running = [&](const RunningProcess& process) {
      if (process.wait("the address", [&] { return folder_.read("url").ends_with("\n"); })) look(folder_.read("url"));
      kill(process, SIGTERM);
    };
    arguments.insert(arguments.begin(), {"watch", "--port", "0"});
    return run_crest(arguments, o);
  }
};

// The reply of this machine to "GET PATH" of "http://HOST:PORT/...".
std::string reply_of(const std::string& url, const std::string& path) {
  const size_t colon = url.rfind(':');
  sockaddr_in address = {};
  address.sin_family = AF_INET, address.sin_port = htons(uint16_t(std::atoi(url.c_str() + colon + 1)));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const std::string request = "GET " + path + " HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  std::string reply;
  if (::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 &&
      ::send(fd, request.data(), request.size(), MSG_NOSIGNAL) > 0) {
    char buffer[4096];
    for (ssize_t n; (n = ::recv(fd, buffer, sizeof buffer, 0)) > 0;) reply.append(buffer, size_t(n));
  }
  ::close(fd);
  return reply;
}

}  // namespace

TEST_F(CliWatch, ServesUntilItIsStopped) {
  RunResult r = watch({"imported"}, [](const std::string& url) {
    EXPECT_TRUE(url.starts_with("http://127.0.0.1:")) << url;
    EXPECT_FALSE(contains(url, "token")) << url;
    EXPECT_TRUE(contains(reply_of(url, "/"), "firstRuns = [1]"));
    EXPECT_TRUE(contains(reply_of(url, "/api/runs"), "\"imported\""));
  });
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_TRUE(contains(r.err, "crest.db")) << r.err;
}

TEST_F(CliWatch, AnotherAddressNeedsTheToken) {
  RunResult r = watch({"--bind", "0.0.0.0"}, [](const std::string& url) {
    const size_t token = url.find("?token=");
    ASSERT_NE(token, std::string::npos) << url;
    const std::string query = url.substr(token, url.size() - token - 1);
    EXPECT_EQ(query.size(), 7u + 32u) << url;
    EXPECT_TRUE(contains(reply_of(url, "/api/runs" + query), "\"imported\""));
    EXPECT_TRUE(contains(reply_of(url, "/api/runs"), " 403 "));
  });
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_TRUE(contains(r.err, "It is not encrypted")) << r.err;
}

TEST_F(CliWatch, ErrorsNameTheirCause) {
  expect_error({"watch", "absent"}, 1, {"absent"}, options());
  expect_error({"watch", "--port", "70000"}, 2, {"70000", "--port"}, options());
  expect_error({"watch", "--bind", "nowhere"}, 2, {"'nowhere'", "--bind"}, options());
  expect_error({"watch"}, 1, {"crest.db"});
}

}  // namespace crest::test
