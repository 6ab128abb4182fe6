// Starts a record of the run store, for every kind of measurement.
#pragma once
#include <string>

#include "backend/backend.h"
#include "device/conditions.h"
#include "model/recipe.h"
#include "store/recorder.h"

namespace crest {

// kind, phase ("" for training), name (the store makes one when empty), command, recipe, device,
// key, environment.
RunRecord new_record(const std::string& kind, const std::string& name, const Recipe& recipe, const Device& device,
                     const std::string& phase, const Conditions& before);

// RunRecord::key. The recipe must be resolved. variant: other differences that make measurements
// incomparable.
std::string run_key(const Recipe& recipe, const Device& device, const std::string& phase,
                    const std::string& variant = "");

// This process' command line, quoted for a shell.
std::string command_line();

}  // namespace crest
