// A small HTTP server for read-only pages: GET and HEAD, no files, no cookies.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace crest {

struct HttpRequest {
  std::string path;                                        // "/api/runs", decoded
  std::vector<std::pair<std::string, std::string>> query;  // decoded, in order
  // The first value; absent: none.
  std::optional<std::string> value(const std::string& key) const;
};

struct HttpResponse {
  int status = 200;
  std::string type = "text/plain; charset=utf-8", body = {};
  std::string policy = {};  // Content-Security-Policy; "": nothing may be loaded
};

struct ServerOptions {
  std::string bind = "127.0.0.1";
  int port = 0;  // 0: any free one
  // Every request needs ?token=...; "": none. Then only requests to this machine by name
  // (localhost) or loopback address are answered, so no page of the internet can reach the server
  // by a name of its own.
  std::string token = {};
};

// Whether only this machine reaches a server bound here.
bool is_loopback_address(const std::string& bind);
// Whether it stands for all addresses of this machine.
bool is_any_address(const std::string& bind);
// Whether a Host header names this machine as seen from itself: 127.0.0.1:80, localhost, [::1].
bool is_own_host(const std::string& host);
// "a=1&b=x%20y", decoded.
std::vector<std::pair<std::string, std::string>> parse_query(const std::string& text);

// Whether this program was built with the server.
bool has_server();

class HttpServer {
 public:
  using Answer = std::function<HttpResponse(const HttpRequest&)>;
  // Throws if the port is taken or the address is not this machine's. answer is called by several
  // threads.
  HttpServer(const ServerOptions& options, Answer answer);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const;
  // With the token.
  std::string url() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace crest
