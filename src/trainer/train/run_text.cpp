#include "train/run_text.h"

#include <fmt/format.h>

#include <filesystem>
#include <utility>

#include "core/error.h"
#include "core/text.h"
#include "core/unpack.h"
#include "data/mixture.h"
#include "data/tokenizer.h"

namespace crest {

namespace fs = std::filesystem;

void check_text_options(TrainRequest& request) {
  if (!request.texts.empty()) return;
  const auto data = request.training.find("data");
  if (data != request.training.end() && data->second == std::vector<std::string>{data_stream})
    request.train.stream_tokenizer = std::exchange(request.text.tokenizer, {});
  const bool continues = !request.resume.empty();
  std::vector<std::string> files = values_in(request.flags, "--config");
  if (continues) files.push_back(request.resume + "/config.toml");
  const TextOptions given = std::exchange(request.text, {});
  for (auto& [name, value] : {std::pair<std::string, std::string>{"tokenizer", given.tokenizer},
                              {"chat-template", given.chat_template},
                              {"add-bos", given.add_bos ? "true" : ""}}) {
    bool of_data = value.empty();
    for (auto& file : files) {
      if (of_data) break;
      GivenSettings of_file = settings_in(read_config_file(file));
      auto was = of_file.find(name);
      of_data = of_file.count("data") && was != of_file.end() && was->second.back() == value;
      if (of_data && !continues && request.print)
        request.print(fmt::format("crest: note: {} of {} is ignored: the data has its own.", name, printable(file)));
    }
    if (!of_data)
      fail_usage(fmt::format("'{}' was given without text: the data has its own", printable(value)), "--" + name,
                 continues ? "Leave it out." : "Leave it out, or give the text instead of --data.");
  }
}

std::string tokenizer_of(const LoadedModel& model, const std::string& given) {
  std::string init = printable(model.weights_path);
  auto refuse = [&](const std::string& difference) {
    fail_usage(fmt::format("'{}' is not the tokenizer of the model {}: {}", printable(given), init, difference),
               "--tokenizer",
               model.tokenizer ? "Leave it out: --init uses the model's tokenizer."
                               : "Give the tokenizer that the model was trained with.");
  };
  if (given.starts_with("bpe:")) refuse("it would be trained on the text");
  if (!model.tokenizer) {
    if (!given.empty()) return given;
    bool none = model.tokenizer_problem.empty();
    fail(none ? "the model has no tokenizer.json, so its tokens are unknown"
              : "the model's tokenizer cannot be used: " + model.tokenizer_problem,
         init,
         std::string(none ? "Give" : "Correct the file, or give") +
             " the tokenizer that it was trained with, in a form that Crest reads: --tokenizer FILE.");
  }
  require_embeddings(model.tokenizer->vocab_size(), model.config, model.tokenizer_path);
  if (given.empty()) return model.tokenizer_path;
  if (given != "bytes" && !fs::exists(given)) return given;  // prepare_text reports the error
  Tokenizer tokenizer = given == "bytes" ? Tokenizer::bytes() : Tokenizer::load(given);
  std::string difference = tokenizer.difference(*model.tokenizer, "this one", "the model");
  if (!difference.empty()) refuse(difference);
  return given;
}

std::string run_name(const TrainRequest& request) {
  if (request.train.streams()) return "stream";
  if (request.texts.empty()) return join(labels_of(parse_data_sources(request.train.data)), "+");
  fs::path path = fs::absolute(name_inside(request.texts[0])).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  return path.stem().string();
}

}  // namespace crest
