#include "checkpoint/checkpoint_manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "core/error.h"
#include "core/json.h"
#include "core/json_number.h"
#include "core/text.h"

namespace crest {

static constexpr std::string_view format_name = "crest-checkpoint-1";
// The last lines hold the hash of all bytes before them, so their length is fixed.
static constexpr std::string_view tail_begin = ",\n\"manifest_sha256\": \"", tail_end = "\"\n}\n";
static constexpr size_t tail_bytes = tail_begin.size() + 64 + tail_end.size();

std::string print_manifest(const Manifest& manifest) {
  std::string text = fmt::format("{{\n\"format\": \"{}\",\n\"step\": {},\n\"files\": {{", format_name, manifest.step);
  const char* comma = "\n";
  for (auto& [name, file] : manifest.files) {
    text += fmt::format("{}  {}: {{\"bytes\": {}, \"{}\": \"{}\"", comma, nlohmann::json(name).dump(), file.bytes,
                        file.is_tensors ? "header_sha256" : "sha256", to_hex(file.sha256));
    comma = ",\n";
    if (file.is_tensors) {
      text += ", \"tensors\": {";
      const char* inner = "\n";
      for (auto& [tensor, digest] : file.tensors) {
        text += fmt::format("{}    {}: \"{}\"", inner, nlohmann::json(tensor).dump(), to_hex(digest));
        inner = ",\n";
      }
      text += "}";
    }
    text += "}";
  }
  text += "\n}";
  std::string own = sha256_hex(text.data(), text.size());
  return text.append(tail_begin).append(own).append(tail_end);
}

bool is_plain_file_name(std::string_view name) {
  return !name.empty() && name.size() <= 255 && name[0] != '.' &&
         std::all_of(name.begin(), name.end(),
                     [](unsigned char c) { return c >= 0x20 && c != 0x7f && c != '/' && c != '\\'; });
}

static std::optional<Digest> parse_hex(const nlohmann::json& value) {
  auto* text = value.get_ptr<const std::string*>();
  if (!text || text->size() != 64) return std::nullopt;
  Digest out{};
  for (size_t i = 0; i < 64; ++i) {
    size_t digit = std::string_view("0123456789abcdef").find((*text)[i]);
    if (digit == std::string_view::npos) return std::nullopt;
    out[i / 2] = uint8_t(out[i / 2] << 4 | digit);
  }
  return out;
}

Manifest parse_manifest(std::string_view text, const std::string& where) {
  auto refuse = [&](const std::string& what) { fail("damaged manifest: " + what, printable(where)); };
  if (text.size() < tail_bytes) refuse("it is cut short");
  std::string_view body = text.substr(0, text.size() - tail_bytes), tail = text.substr(body.size());
  if (!tail.starts_with(tail_begin) || tail.substr(tail_begin.size() + 64) != tail_end)
    refuse("it does not end with its own hash");
  if (tail.substr(tail_begin.size(), 64) != sha256_hex(body.data(), body.size()))
    refuse("its content does not match its own hash");
  nlohmann::json json = parse_json_guarded(text, {.bytes = uint64_t(64) << 20, .depth = 6, .values = 500'000}, where);
  Manifest out;
  try {
    if (json.at("format") != format_name)
      fail(fmt::format("the checkpoint has format {}, but this version of Crest reads {}",
                       printable(json.at("format").dump(), 60), format_name),
           printable(where), "Use the version of Crest that wrote it.");
    out.step = whole_number<int64_t>(json.at("step")).value_or(-1);
    if (out.step < 0 || out.step > most_checkpoint_steps)
      refuse(fmt::format("\"step\" is not a whole number from 0 to {}", most_checkpoint_steps));
    for (auto& [name, entry] : json.at("files").items()) {
      if (!is_plain_file_name(name)) refuse(fmt::format("'{}' is not a plain file name", printable(name)));
      ManifestFile file;
      if (!entry.at("bytes").is_number_unsigned()) refuse("a size is not a number");
      file.bytes = entry.at("bytes").get<uint64_t>();
      file.is_tensors = entry.contains("tensors");
      auto own = parse_hex(entry.at(file.is_tensors ? "header_sha256" : "sha256"));
      if (!own) refuse(fmt::format("the hash of '{}' is not 64 hexadecimal digits", printable(name)));
      file.sha256 = *own;
      if (file.is_tensors)
        for (auto& [tensor, value] : entry.at("tensors").items()) {
          auto digest = parse_hex(value);
          if (!digest) refuse(fmt::format("the hash of '{}' is not 64 hexadecimal digits", printable(tensor)));
          file.tensors.emplace(tensor, *digest);
        }
      out.files.emplace(name, std::move(file));
    }
  } catch (const nlohmann::json::exception& e) {
    refuse(printable(e.what()));
  }
  return out;
}

}  // namespace crest
