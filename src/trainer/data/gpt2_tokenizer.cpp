#include "data/gpt2_tokenizer.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>

#include "core/error.h"
#include "core/io.h"
#include "core/output_file.h"
#include "core/sha256.h"
#include "core/temporary_folder.h"
#include "core/text.h"
#include "core/to_stderr.h"
#include "host/external.h"
#include "host/stop_signal.h"

namespace crest {

namespace {

namespace fs = std::filesystem;

constexpr const char* package_url =
    "https://files.pythonhosted.org/packages/f5/77/952ca71515f81919bd8a6a4a3f89a27b09e73880cebf90957eda8f2f8545/"
    "openai-whisper-20240930.tar.gz";
constexpr const char* member = "whisper/assets/gpt2.tiktoken";
// SHA-256 of gpt2.tiktoken (r50k_base.tiktoken in `tiktoken`).
constexpr const char* vocabulary_sha256 = "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930";
constexpr const char* largest_package = "67108864";  // bytes; the pinned package has 0.8 MB
constexpr uint64_t largest_vocabulary = 4 << 20;

bool is_url(const std::string& text) { return text.starts_with("https://") || text.starts_with("http://"); }

CommandOutput run_tool(const std::string& tool, const std::vector<std::string>& arguments) {
  ExternalOptions limits;
  limits.timeout_seconds = 300;
  limits.canceled = [] { return StopSignal::requested(); };
  limits.kept_output = largest_vocabulary;
  std::vector<std::string> all = {"env", tool};  // finds it in PATH
  all.insert(all.end(), arguments.begin(), arguments.end());
  CommandOutput output = run_program("/usr/bin/env", all, {}, limits);
  if (output.exit_code == 127)
    fail(fmt::format("the program {} is required but not installed", tool), "crest data get-gpt2-tokenizer",
         fmt::format("Install it (apt-get install {}), or give the unpacked gpt2.tiktoken: --from FILE.", tool));
  if (output.canceled)
    throw Error(Exit::interrupted, "interrupted", "crest data get-gpt2-tokenizer", "Nothing was written.");
  return output;
}

void download(const std::string& url, const std::string& file) {
  to_stderr("fetching {}\n", printable(url));
  CommandOutput curl =
      run_tool("curl", {"--fail", "--silent", "--show-error", "--location", "--proto", "=http,https",
                        "--connect-timeout", "20", "--max-filesize", largest_package, "--output", file, "--url", url});
  if (curl.exit_code == 0 && !curl.timed_out) return;
  std::string said = curl.timed_out ? "not finished within 300 s" : curl.err.substr(0, curl.err.find('\n'));
  fail(fmt::format("cannot fetch the package: {}", printable(said)), printable(url),
       fmt::format("On a machine with a network, download {} and use it here: crest data get-gpt2-tokenizer --from "
                   "FILE. For a mirror, use --from URL.",
                   package_url));
}

// gpt2.tiktoken from a package, or the file itself. The path is absolute, so no name looks like a
// flag.
std::string extract(const std::string& path, const std::string& name) {
  std::string start(4, '\0');
  start.resize(File::open_read(path).read_some_at(start.data(), start.size(), 0));
  CommandOutput output;
  if (start.starts_with("\x1f\x8b"))
    output = run_tool("tar", {"--force-local", "--extract", "--gzip", "--to-stdout", "--file", path, "--wildcards",
                              fmt::format("*/{}", member)});
  else if (start.starts_with("PK"))
    output = run_tool("unzip", {"-p", path, member});
  else
    return read_file(path, largest_vocabulary);
  if (output.exit_code != 0 || output.timed_out)
    fail(fmt::format("cannot find {} in the package: {}", member,
                     printable(output.err.substr(0, output.err.find('\n')))),
         printable(name), fmt::format("Give openai-whisper as published on PyPI: {}", package_url));
  return output.out;
}

}  // namespace

Gpt2Tokenizer get_gpt2_tokenizer(Gpt2Download o) {
  if (o.out.empty()) o.out = "gpt2-tokenizer.json";
  if (o.from.empty()) {
    const char* named = std::getenv("CREST_GPT2_PACKAGE");
    o.from = named && *named ? named : package_url;
  }
  if (path_exists(o.out) && (!o.overwrite || is_directory(o.out)))
    fail("the output file exists", printable(o.out), "Choose another --out, or give --overwrite to replace it.");
  require_no_run_file(o.out);
  StopSignal signal;
  TemporaryFolder folder;
  std::string package = is_url(o.from) ? folder / "package" : fs::absolute(o.from).string();
  if (is_url(o.from)) download(o.from, package);
  std::string vocabulary = extract(package, o.from);
  std::string found = sha256_hex(vocabulary.data(), vocabulary.size());
  if (found != vocabulary_sha256)
    fail(fmt::format("this is not GPT-2's vocabulary: SHA-256 {} instead of {}", found, vocabulary_sha256),
         printable(o.from),
         fmt::format("Give openai-whisper as published on PyPI ({}), or its gpt2.tiktoken.", package_url));
  Tokenizer tokenizer = Tokenizer::parse_tiktoken(vocabulary, o.from);
  create_directories(parent_path(o.out));
  write_file_atomic(o.out, o.out.ends_with(".tiktoken") ? vocabulary : tokenizer.to_json());
  return {std::move(tokenizer), o.out, o.from, found};
}

}  // namespace crest
