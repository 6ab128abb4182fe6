#include "report/report_files.h"

#include <fmt/format.h>

#include <filesystem>

#include "core/error.h"
#include "core/io.h"
#include "core/output_file.h"
#include "core/text.h"

namespace crest {

namespace fs = std::filesystem;

namespace {

bool is_html(const std::string& file) {
  std::string ending = fs::path(file).extension().string();
  if (ending == ".html" || ending == ".htm") return true;
  if (ending == ".md" || ending == ".markdown") return false;
  fail_usage(fmt::format("the format of '{}' is unknown", printable(file)), "-o",
             "Give a file name that ends in .html or .md.");
}

void write_markdown(const Page& page, const std::string& file, bool figures) {
  fs::path path(file);
  std::string folder = figures ? path.stem().string() + "_files" : "";
  MarkdownFiles files = to_markdown(page, folder);
  if (!files.figures.empty()) {
    fs::path place = path.parent_path() / folder;
    std::error_code error;
    fs::create_directories(place, error);
    if (error)
      fail("cannot create the folder: " + error.message(), printable(place.string()), "Check its parent folder.");
    for (auto& [name, svg] : files.figures) write_file_atomic((place / name).string(), svg);
  }
  write_file_atomic(file, files.text);
}

}  // namespace

void check_report_file(const std::string& file, bool overwrite) {
  is_html(file);
  require_no_run_file(file);
  if (overwrite || !path_exists(file)) return;
  if (fs::is_directory(file)) fail(fmt::format("'{}' is a folder", printable(file)), "-o", "Give the name of a file.");
  File existing = File::open_read(file);
  std::string start(2048, '\0');
  start.resize(existing.read_some(start.data(), start.size()));
  if (start.find(page_marker) == std::string::npos)
    fail(fmt::format("'{}' exists and is not a Crest report", printable(file)), "-o",
         "Choose another file, or add --overwrite.");
}

void write_report_file(const Page& page, const std::string& file, bool figures) {
  if (is_html(file))
    write_file_atomic(file, to_html(page));
  else
    write_markdown(page, file, figures);
}

}  // namespace crest
