// Functions that the host and the kernels of a GPU share.
#pragma once
#ifdef __CUDACC__
#define CREST_BOTH __host__ __device__
#else
#define CREST_BOTH
#endif
