// Entry points of the subcommands, one file each.
#pragma once
#include <functional>

namespace CLI {
class App;
}

namespace crest {

std::function<int()> setup_data(CLI::App&);
std::function<int()> setup_train(CLI::App&);
std::function<int()> setup_sample(CLI::App&);
std::function<int()> setup_eval(CLI::App&);
std::function<int()> setup_bench(CLI::App&);
std::function<int()> setup_program(CLI::App&);
std::function<int()> setup_plan(CLI::App&);
std::function<int()> setup_devices(CLI::App&);

}  // namespace crest
