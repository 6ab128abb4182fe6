// Entry points of the passes, one file each; the ordered table is pipeline.cpp.
#pragma once
#include "passes/pass.h"

namespace crest {

void pad_vocabulary(Program&, const PassContext&);
void decompose_attention(Program&, const PassContext&);
void decompose_pointwise(Program&, const PassContext&);
void set_precision(Program&, const PassContext&);
void autograd(Program&, const PassContext&);
void accumulate(Program&, const PassContext&);
void clip_gradients(Program&, const PassContext&);
void optimizer(Program&, const PassContext&);
void group_parameters(Program&, const PassContext&);
void recompute(Program&, const PassContext&);
void data_parallel(Program&, const PassContext&);
void fuse(Program&, const PassContext&);
void assign_lanes(Program&, const PassContext&);
void prune(Program&, const PassContext&);

}  // namespace crest
