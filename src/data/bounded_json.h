// A JSON document read from an untrusted file, with caps on size and depth. Included by .cpp files only.
#pragma once
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "core/error.h"
#include "data/file_io.h"

namespace crest {

inline nlohmann::json read_bounded_json(const std::filesystem::path& path, size_t max_bytes, int max_depth) {
  std::string text = read_small_file(path, max_bytes), where = path.string();
  // The callback sees every opening bracket before anything deeper is built.
  auto limit_depth = [&](int depth, nlohmann::json::parse_event_t, nlohmann::json&) {
    if (depth > max_depth) fail("the JSON nests too deeply", where);
    return true;
  };
  try {
    return nlohmann::json::parse(text, limit_depth);
  } catch (const nlohmann::json::exception&) {
    fail("this is not valid JSON", where, "The file may be damaged or cut short; prepare the data again.");
  }
}

}  // namespace crest
