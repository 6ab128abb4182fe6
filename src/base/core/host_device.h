// Functions shared by the host and GPU kernels.
#pragma once
#ifdef __CUDACC__
#define CREST_BOTH __host__ __device__
#define CREST_BOTH_INLINE __host__ __device__ __forceinline__
#else
#define CREST_BOTH
#define CREST_BOTH_INLINE inline __attribute__((always_inline))
#endif
