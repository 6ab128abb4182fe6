// The server of crest watch, by a client that speaks HTTP over a socket.
#include "watch/server.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/error.h"

namespace crest::test {

namespace {

// The whole reply to these bytes.
std::string reply_to(int port, const std::string& request) {
  int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET, address.sin_port = htons(uint16_t(port)),
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::string reply;
  EXPECT_EQ(::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  EXPECT_EQ(::send(fd, request.data(), request.size(), MSG_NOSIGNAL), ssize_t(request.size()));
  char buffer[4096];
  for (ssize_t n; (n = ::recv(fd, buffer, sizeof buffer, 0)) > 0;) reply.append(buffer, size_t(n));
  ::close(fd);
  return reply;
}

std::string get(int port, const std::string& path, const std::string& host = "127.0.0.1",
                const std::string& method = "GET") {
  return reply_to(port, method + " " + path + " HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n\r\n");
}

int status_of(const std::string& reply) { return reply.size() > 12 ? std::atoi(reply.c_str() + 9) : 0; }

HttpResponse echo(const HttpRequest& r) {
  if (r.path == "/fails") throw std::runtime_error("the reason");
  HttpResponse response;
  response.body = r.path;
  for (auto& [key, value] : r.query) response.body += "|" + key + "=" + value;
  return response;
}

class WatchServer : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_server()) GTEST_SKIP() << "built without libcivetweb-dev";
  }
};

std::string error_of_server(const ServerOptions& options) {
  try {
    HttpServer server(options, echo);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

}  // namespace

TEST_F(WatchServer, AnswersReadersOnThisMachine) {
  HttpServer server({}, echo);
  const int port = server.port();
  EXPECT_EQ(server.url(), "http://127.0.0.1:" + std::to_string(port) + "/");
  std::string reply = get(port, "/a?run=1&run=2&x=b%20c+d%2");
  EXPECT_EQ(status_of(reply), 200) << reply;
  EXPECT_NE(reply.find("\r\n\r\n/a|run=1|run=2|x=b c d%2"), std::string::npos) << reply;
  for (const char* header : {"X-Content-Type-Options: nosniff", "Cache-Control: no-store", "default-src 'none'",
                             "frame-ancestors 'none'", "Referrer-Policy: no-referrer"})
    EXPECT_NE(reply.find(header), std::string::npos) << header << " in\n" << reply;
  const std::string head = get(port, "/a", "localhost:" + std::to_string(port), "HEAD");
  EXPECT_EQ(status_of(head), 200);
  EXPECT_TRUE(head.ends_with("\r\n\r\n")) << head;
  EXPECT_EQ(status_of(get(port, "/a", "[::1]:80")), 200);
  std::string failed = get(port, "/fails");
  EXPECT_EQ(status_of(failed), 500);
  EXPECT_NE(failed.find("the reason"), std::string::npos);
}

TEST_F(WatchServer, RefusesForeignHostsAndWriters) {
  HttpServer server({}, echo);
  const int port = server.port();
  for (const char* host : {"example.com", "127.0.0.1.example.com", "localhost.example.com:80", "10.0.0.1", "",
                           "128.0.0.1", "[::2]", "localhost:80@example.com"}) {
    std::string reply = get(port, "/a", host);
    EXPECT_TRUE(status_of(reply) == 403 || status_of(reply) == 400) << host << ": " << reply;
    EXPECT_EQ(reply.find("\r\n\r\n/a"), std::string::npos) << host;
  }
  EXPECT_NE(status_of(reply_to(port, "GET /a HTTP/1.0\r\n\r\n")), 200) << "no Host at all";
  for (const char* method : {"POST", "PUT", "DELETE", "OPTIONS"})
    EXPECT_EQ(status_of(get(port, "/a", "127.0.0.1", method)), 405) << method;
  EXPECT_EQ(status_of(get(port, "/../../etc/passwd")), 200) << "a name like any other: there are no files";
}

TEST_F(WatchServer, NeedsItsTokenWhenItHasOne) {
  ServerOptions options;
  options.token = "0123456789abcdef";
  HttpServer server(options, echo);
  const int port = server.port();
  EXPECT_TRUE(server.url().ends_with("/?token=0123456789abcdef")) << server.url();
  EXPECT_EQ(status_of(get(port, "/a?token=0123456789abcdef", "gpu-17.example.com:80")), 200);
  for (const char* path :
       {"/a", "/a?token=", "/a?token=0123456789abcdeF", "/a?token=0123456789abcde", "/a?x=0123456789abcdef"})
    EXPECT_EQ(status_of(get(port, path)), 403) << path;
}

TEST_F(WatchServer, SaysWhyItCannotListen) {
  HttpServer server({}, echo);
  ServerOptions options;
  options.port = server.port();
  EXPECT_NE(error_of_server(options).find("is taken by another program"), std::string::npos)
      << error_of_server(options);
  options.port = 0, options.bind = "203.0.113.7";  // for documentation: no machine has it
  EXPECT_NE(error_of_server(options).find("no server can listen at 203.0.113.7"), std::string::npos);
  options.bind = "nonsense";
  EXPECT_NE(error_of_server(options).find("'nonsense' is not an address"), std::string::npos);
}

TEST(WatchHosts, LoopbackIsThisMachineOnly) {
  for (const char* bind : {"127.0.0.1", "127.1.2.3", "::1"}) EXPECT_TRUE(is_loopback_address(bind)) << bind;
  for (const char* bind : {"0.0.0.0", "::", "192.168.1.5", "localhost", ""})
    EXPECT_FALSE(is_loopback_address(bind)) << bind;
}

}  // namespace crest::test
