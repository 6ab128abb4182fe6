// crest watch: recorded and running training runs as a page in a browser.
#include "watch/watch.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <thread>

#include "cli/command.h"
#include "cli/options.h"
#include "cli/store_options.h"
#include "core/error.h"
#include "core/text.h"
#include "core/to_stderr.h"
#include "host/stop_signal.h"
#include "watch/server.h"

namespace crest {

namespace {

struct WatchFlags {
  std::vector<std::string> names;
  StoreFile store;
  ServerOptions server{.port = 7377};
  bool port_given = false;
};

// The usual port may be taken by another crest watch: then any free one will do.
std::unique_ptr<HttpServer> start_server(WatchFlags& o, WatchPages& pages) {
  auto answer = [&pages](const HttpRequest& request) { return pages.answer(request); };
  try {
    return std::make_unique<HttpServer>(o.server, answer);
  } catch (const Error& e) {
    if (o.port_given || e.where() != "--port") throw;
  }
  o.server.port = 0;
  return std::make_unique<HttpServer>(o.server, answer);
}

int run_watch(WatchFlags& o) {
  if (o.server.port < 0 || o.server.port > 65535)
    fail_usage(fmt::format("{} is not a port", o.server.port), "--port",
               "Give a number from 0 (any free port) to 65535.");
  if (!is_loopback_address(o.server.bind)) o.server.token = new_uid() + new_uid();
  StopSignal signal(StopSignal::measuring_grace);
  StopSignal::watch_output();
  const std::string file = o.store.file.empty() ? default_store_file() : o.store.file;
  std::vector<int64_t> runs;
  {
    Store store(file, Store::Mode::read);
    for (auto& name : o.names) {
      const int64_t id = store.find(name);
      if (const std::string kind = store.head(id).kind; kind != "train" && kind != "log")
        fail_usage(fmt::format("run {} is of crest {}, which has no curves", id, kind), "RUN",
                   "Give training runs or imported logs; crest report shows the others.");
      runs.push_back(id);
    }
  }
  WatchPages pages(file, runs);
  std::unique_ptr<HttpServer> server = start_server(o, pages);
  fmt::print("{}\n", server->url());
  std::fflush(stdout);
  if (!is_loopback_address(o.server.bind))
    to_stderr("Other machines reach this page at {} port {}. It is not encrypted, and its token is its password.\n",
              is_any_address(o.server.bind) ? "every address of this machine," : printable(o.server.bind),
              server->port());
  to_stderr("Shows {}. Ends with Ctrl-C.\n", printable(file));
  while (!StopSignal::requested()) std::this_thread::sleep_for(std::chrono::milliseconds(100));
  return 0;
}

}  // namespace

std::function<int()> setup_watch(CLI::App& app) {
  auto o = std::make_shared<WatchFlags>();
  app.add_option("RUN", o->names,
                 "runs to show first: id, uid, name or folder; default: running ones, else the newest");
  app.add_option("--bind", o->server.bind, "address to listen at; others than loopback get a token in the URL")
      ->type_name("ADDRESS")
      ->capture_default_str();
  auto* port = app.add_option("--port", o->server.port, "port; 0: any free one")->capture_default_str();
  add_store_option(app, o->store);
  add_config_option(app);
  return [o, port] {
    o->port_given = port->count() > 0;
    return run_watch(*o);
  };
}

}  // namespace crest
