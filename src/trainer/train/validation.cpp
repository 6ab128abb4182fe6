#include "train/validation.h"

#include <algorithm>
#include <cmath>

#include "comm/rank_group.h"

namespace crest {

namespace {

int64_t rows_of_batch(const Engine& engine) {
  return engine.validation_batch() * engine.session().recipe.data_ranks();
}

}  // namespace

ValidationRow validate(Engine& engine, RunData& data, int64_t step, RankGroup* group) {
  ValidationRow row;
  row.step = step;
  double sum = 0, shares = 0;
  for (size_t source : data.validated()) {
    double loss = engine.validate(data.val_batches(source, rows_of_batch(engine)),
                                  data.validation(source, engine.ranks()));
    const bool failed = data.error() != nullptr;
    if (group ? group->any(failed) : failed) {
      if (failed) throw RunData::Failed{data.error()};
      throw Engine::PeerDidNotRead{-1};
    }
    if (std::isnan(loss)) loss = NAN;  // messages show no sign
    if (!data.data().mixed()) {
      row.val_loss = loss;
      return row;
    }
    const double share = data.data().order.share(source);
    sum += share * loss, shares += share;
    row.of_sources.emplace_back(data.data().labels[source], loss);
  }
  row.val_loss = sum / shares;
  return row;
}

ValidationSize validation_size(const Engine& engine, const RunData& data) {
  ValidationSize size;
  for (size_t source : data.validated()) {
    size.rows = rows_of_batch(engine);
    size.batches = std::max(size.batches, data.val_batches(source, size.rows));
  }
  return size;
}

}  // namespace crest
