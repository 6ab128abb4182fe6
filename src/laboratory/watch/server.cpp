#include "watch/server.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "core/error.h"
#include "core/text.h"
#include "core/thread.h"

#ifdef CREST_HAVE_CIVETWEB
#include <civetweb.h>
#endif

namespace crest {

namespace {

int digit_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

std::string decoded(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const int high = text[i] == '%' && i + 2 < text.size() ? digit_of(text[i + 1]) : -1;
    const int low = high < 0 ? -1 : digit_of(text[i + 2]);
    if (low >= 0)
      out += char(16 * high + low), i += 2;
    else
      out += text[i] == '+' ? ' ' : text[i];
  }
  return out;
}

}  // namespace

std::optional<std::string> HttpRequest::value(const std::string& key) const {
  for (auto& [name, value] : query)
    if (name == key) return value;
  return std::nullopt;
}

std::vector<std::pair<std::string, std::string>> parse_query(const std::string& text) {
  std::vector<std::pair<std::string, std::string>> query;
  for (auto& part : split(text, '&')) {
    if (part.empty()) continue;
    const size_t equal = std::min(part.find('='), part.size());
    query.push_back({decoded(part.substr(0, equal)), decoded(part.substr(std::min(equal + 1, part.size())))});
  }
  return query;
}

bool is_any_address(const std::string& bind) { return bind == "0.0.0.0" || bind == "::"; }

bool is_loopback_address(const std::string& bind) {
  in_addr address;
  return bind == "::1" || (::inet_pton(AF_INET, bind.c_str(), &address) == 1 && (ntohl(address.s_addr) >> 24) == 127);
}

bool is_own_host(const std::string& host) {
  std::string name = host;
  const size_t bracket = name.rfind(']'), colon = name.rfind(':');
  if (colon != std::string::npos && (bracket == std::string::npos || colon > bracket)) {
    if (name.find_first_not_of("0123456789", colon + 1) != std::string::npos) return false;  // no port
    name.resize(colon);
  }
  if (name.size() > 2 && name.front() == '[' && name.back() == ']') name = name.substr(1, name.size() - 2);
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return char(std::tolower(c)); });
  return name == "localhost" || is_loopback_address(name);
}

#ifdef CREST_HAVE_CIVETWEB

namespace {

// The time of a comparison tells nothing about a secret of known length.
bool is_same_secret(const std::string& a, const std::string& b) {
  if (a.size() != b.size()) return false;
  unsigned char differ = 0;
  for (size_t i = 0; i < a.size(); ++i) differ |= static_cast<unsigned char>(a[i] ^ b[i]);
  return differ == 0;
}

const char* reason_of(int status) {
  switch (status) {
    case 200: return "OK";
    case 204: return "No Content";
    case 400: return "Bad Request";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    default: return "Internal Server Error";
  }
}

// IPv4 or IPv6, with the port.
class Address {
 public:
  explicit Address(const ServerOptions& o) {
    v4_.sin_family = AF_INET, v4_.sin_port = htons(uint16_t(o.port));
    v6_.sin6_family = AF_INET6, v6_.sin6_port = htons(uint16_t(o.port));
    is_v4_ = ::inet_pton(AF_INET, o.bind.c_str(), &v4_.sin_addr) == 1;
    valid_ = is_v4_ || ::inet_pton(AF_INET6, o.bind.c_str(), &v6_.sin6_addr) == 1;
  }
  bool valid() const { return valid_; }
  int family() const { return is_v4_ ? AF_INET : AF_INET6; }
  const sockaddr* get() const {
    return is_v4_ ? reinterpret_cast<const sockaddr*>(&v4_) : reinterpret_cast<const sockaddr*>(&v6_);
  }
  socklen_t size() const { return is_v4_ ? sizeof v4_ : sizeof v6_; }

 private:
  sockaddr_in v4_ = {};
  sockaddr_in6 v6_ = {};
  bool is_v4_ = false, valid_ = false;
};

// civetweb's own message says nothing about the cause. The server's socket follows at once: another
// process is rarely in between.
void check_address(const ServerOptions& o) {
  const Address address(o);
  if (!address.valid())
    fail_usage(fmt::format("'{}' is not an address", printable(o.bind)), "--bind",
               "Give an address of this machine, for example 127.0.0.1 or 0.0.0.0 (all of them).");
  const int fd = ::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) fail(fmt::format("no socket could be made: {}", std::strerror(errno)), "crest watch");
  const int on = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const int code = ::bind(fd, address.get(), address.size());
  // Linux lets two sockets bind with SO_REUSEADDR as long as neither listens.
  const int error = code == 0 && ::listen(fd, 1) == 0 ? 0 : errno;
  ::close(fd);
  if (error == EADDRINUSE)
    fail(fmt::format("port {} is taken by another program", o.port), "--port",
         "Give another one, or --port 0 for any.");
  if (error == EACCES)
    fail(fmt::format("port {} needs an administrator", o.port), "--port",
         "Give a port from 1024, or --port 0 for any.");
  if (error)
    fail(fmt::format("no server can listen at {}: {}", printable(o.bind), std::strerror(error)), "--bind",
         "Give an address of this machine.");
}

}  // namespace

struct HttpServer::Impl {
  ServerOptions options;
  Answer answer;
  mg_context* context = nullptr;
  int port = 0;

  HttpResponse response_to(const mg_request_info& info, const char* host) const {
    const std::string method = info.request_method ? info.request_method : "";
    if (options.token.empty() && (!host || !is_own_host(host)))
      return {403, "text/plain; charset=utf-8", "This server answers requests to 127.0.0.1 and localhost only.\n"};
    HttpRequest request;
    request.path = info.local_uri ? info.local_uri : "";
    request.query = parse_query(info.query_string ? info.query_string : "");
    if (!options.token.empty() && !is_same_secret(request.value("token").value_or(""), options.token))
      return {403, "text/plain; charset=utf-8", "The address lacks the token. Use the one that crest watch printed.\n"};
    if (method != "GET" && method != "HEAD")
      return {405, "text/plain; charset=utf-8", "These pages can only be read: use GET.\n"};
    try {
      return answer(request);
    } catch (const std::exception& e) {
      return {500, "text/plain; charset=utf-8", fmt::format("{}\n", e.what())};
    }
  }

  void reply(mg_connection* connection, const mg_request_info& info) const {
    const HttpResponse r = response_to(info, mg_get_header(connection, "Host"));
    const std::string policy = r.policy.empty() ? "default-src 'none'" : r.policy;
    const std::string head = fmt::format(
        "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\nCache-Control: no-store\r\n"
        "X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\nCross-Origin-Resource-Policy: "
        "same-origin\r\n"
        "Content-Security-Policy: {}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n\r\n",
        r.status, reason_of(r.status), r.type, r.body.size(), policy);
    const bool body = std::strcmp(info.request_method ? info.request_method : "", "HEAD") != 0 && r.status != 204;
    const std::string text = body ? head + r.body : head;
    mg_write(connection, text.data(), text.size());
  }
};

bool has_server() { return true; }

HttpServer::HttpServer(const ServerOptions& options, Answer answer) : impl_(std::make_unique<Impl>()) {
  impl_->options = options, impl_->answer = std::move(answer);
  check_address(options);
  mg_init_library(0);
  const std::string address = options.bind.find(':') == std::string::npos
                                  ? fmt::format("{}:{}", options.bind, options.port)
                                  : fmt::format("[{}]:{}", options.bind, options.port);
  // A connection holds its thread, and a browser opens several: none is kept.
  const char* settings[] = {"listening_ports", address.c_str(),     "num_threads", "8",    "request_timeout_ms",
                            "10000",           "enable_keep_alive", "no",          nullptr};
  mg_callbacks callbacks = {};
  callbacks.begin_request = [](mg_connection* connection) {
    const mg_request_info* info = mg_get_request_info(connection);
    try {
      static_cast<const Impl*>(info->user_data)->reply(connection, *info);
    } catch (...) {  // out of memory: civetweb is C
    }
    return 200;
  };
  callbacks.log_message = [](const mg_connection*, const char*) { return 1; };
  impl_->context = mg_start(&callbacks, impl_.get(), settings);
  mg_server_port ports[4] = {};
  if (!impl_->context || mg_get_server_ports(impl_->context, 4, ports) < 1)
    fail(fmt::format("the server could not start at {}", printable(address)), "crest watch", "Try --port 0.");
  impl_->port = ports[0].port;
}

// Without a connection, civetweb takes 2 seconds to notice that it should stop. Connections to
// itself wake it.
HttpServer::~HttpServer() {
  std::atomic<bool> stopped = false;
  ServerOptions own = impl_->options;
  if (own.bind == "0.0.0.0") own.bind = "127.0.0.1";
  if (own.bind == "::") own.bind = "::1";
  own.port = impl_->port;
  {
    Thread waker(
        [&] {
          while (!stopped) {
            const Address address(own);
            const int fd = ::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
            if (fd >= 0) (void)::connect(fd, address.get(), address.size());
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
            if (fd >= 0) ::close(fd);
          }
        },
        [](const std::exception_ptr&) {});
    mg_stop(impl_->context);
    stopped = true;
  }
  mg_exit_library();
}

#else

struct HttpServer::Impl {
  ServerOptions options;
  int port = 0;
};

bool has_server() { return false; }

HttpServer::HttpServer(const ServerOptions&, Answer) {
  fail("this program was built without the web server of crest watch", "crest watch",
       "Install the package libcivetweb-dev and build Crest again (make build does both).");
}
HttpServer::~HttpServer() = default;

#endif

int HttpServer::port() const { return impl_->port; }

std::string HttpServer::url() const {
  const ServerOptions& o = impl_->options;
  // A browser cannot open "all addresses"; on this machine this one is among them.
  const bool any = is_any_address(o.bind);
  const std::string host = any ? "127.0.0.1" : o.bind.find(':') == std::string::npos ? o.bind : "[" + o.bind + "]";
  return fmt::format("http://{}:{}/{}", host, impl_->port, o.token.empty() ? "" : "?token=" + o.token);
}

}  // namespace crest
