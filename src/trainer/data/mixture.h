// Training data from several folders: their weights, and which sample comes from which folder.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace crest {

struct DataSource {
  std::string folder;
  double weight = 1;
  bool weighted = false;  // the weight was given
};

// The values of --data: FOLDER, or FOLDER:WEIGHT. The text after the last colon is a weight if it
// is a number and no folder has the whole name. Usage errors: both folders exist, several sources
// without a weight each, a weight not above 0, the same folder twice, standard input in a mixture.
std::vector<DataSource> parse_data_sources(const std::vector<std::string>& texts);
// The value of --data that gives this source.
std::string data_text(const DataSource& source);

// A short name for each source: its folder's own name, or its path where names are equal.
std::vector<std::string> labels_of(const std::vector<DataSource>& sources);

// The source of every sample of a mixture, as a function of the sample's number alone. Weights
// become whole parts of a period. Within a period, Tijdeman's algorithm ("The chairman assignment
// problem", 1980) chooses the sources. Of the first n samples, for every n, the number from a
// source differs from share * n by less than 1.
class MixtureOrder {
 public:
  // The longest period. Weights that need a longer one are rounded to parts of it.
  static constexpr uint64_t longest_period = 1'000'000;
  // weights: above 0; at most 1000 of them. Throws a usage error if one is below a millionth of
  // their sum.
  explicit MixtureOrder(const std::vector<double>& weights);

  struct Place {
    size_t source;
    uint64_t index;  // number of the sample among its source's samples
  };
  Place operator()(uint64_t sample) const;
  size_t sources() const { return parts_.size(); }
  uint64_t period() const { return source_.size(); }
  // Samples of a source in a period.
  uint64_t part(size_t source) const { return parts_[source]; }
  double share(size_t source) const { return double(parts_[source]) / double(period()); }

 private:
  std::vector<uint64_t> parts_;
  // By sample of a period: its source, and its source's samples before it.
  std::vector<uint16_t> source_;
  std::vector<uint32_t> before_;
};

}  // namespace crest
