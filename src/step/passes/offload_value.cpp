#include <fmt/format.h>

#include <charconv>

#include "core/error.h"
#include "core/text.h"
#include "passes/offload.h"

namespace crest {

namespace {

constexpr std::string_view activations_prefix = "activations=";

int64_t layers_of(std::string_view value, std::string_view number) {
  if (number == "all") return OffloadChoice::all_layers;
  int64_t layers = 0;
  const char* end = number.data() + number.size();
  auto [stop, error] = std::from_chars(number.data(), end, layers);
  if (error != std::errc() || stop != end || layers < 1)
    fail_usage(fmt::format("'{}' of '{}' is not a number of layers", printable(number), printable(value)), "--offload",
               "Give activations=N for the first N layers, or activations=all.");
  return layers;
}

}  // namespace

OffloadChoice offload_choice(std::string_view value) {
  using Activations = OffloadChoice::Activations;
  OffloadChoice choice;
  std::string_view rest = value;
  if (rest == "none") return choice;
  if (rest == "optimizer") return choice.optimizer = true, choice;
  constexpr std::string_view with_optimizer = "optimizer+";
  if (rest.starts_with(with_optimizer)) choice.optimizer = true, rest.remove_prefix(with_optimizer.size());
  if (rest == "activations") {
    choice.activations = Activations::hidden;
  } else if (rest.starts_with(activations_prefix)) {
    choice.activations = Activations::layers;
    choice.layers = layers_of(value, rest.substr(activations_prefix.size()));
  } else {
    fail_usage(fmt::format("'{}' is not a value of --offload", printable(value)), "--offload",
               "Values: none, optimizer, activations, activations=N, activations=all, optimizer+activations, ...");
  }
  return choice;
}

std::string offload_value(const OffloadChoice& choice) {
  using Activations = OffloadChoice::Activations;
  if (choice.activations == Activations::none) return choice.optimizer ? "optimizer" : "none";
  std::string text = choice.optimizer ? "optimizer+activations" : "activations";
  if (choice.activations == Activations::hidden) return text;
  return text + (choice.layers == OffloadChoice::all_layers ? "=all" : fmt::format("={}", choice.layers));
}

}  // namespace crest
