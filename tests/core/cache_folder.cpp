#include "core/cache_folder.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

using namespace crest;

namespace {

// Sets variables of the environment until the end of the test.
class Variables {
 public:
  void set(const char* name, std::optional<std::string> value) {
    const char* before = std::getenv(name);
    kept_.push_back({name, before ? std::optional<std::string>(before) : std::nullopt});
    put(name, value);
  }
  ~Variables() {
    for (auto it = kept_.rbegin(); it != kept_.rend(); ++it) put(it->first, it->second);
  }

 private:
  static void put(const char* name, const std::optional<std::string>& value) {
    if (value)
      setenv(name, value->c_str(), 1);
    else
      unsetenv(name);
  }
  std::vector<std::pair<const char*, std::optional<std::string>>> kept_;
};

}  // namespace

// Empty variables once made files in the root of the file system.
TEST(CacheFolder, TakesNoEmptyVariable) {
  struct Case {
    std::optional<std::string> crest, xdg, home;
    std::string folder;
  };
  for (const Case& c : std::vector<Case>{{"/c", "/x", "/h", "/c"},
                                         {"", "/x", "/h", "/x/crest"},
                                         {{}, "", "/h", "/h/.cache/crest"},
                                         {{}, "relative", "/h", "/h/.cache/crest"},
                                         {{}, {}, "", ""},
                                         {"", "", "", ""},
                                         {{}, {}, {}, ""}}) {
    Variables v;
    v.set("CREST_CACHE", c.crest), v.set("XDG_CACHE_HOME", c.xdg), v.set("HOME", c.home);
    EXPECT_EQ(cache_folder(), c.folder);
  }
}
