// How our kernels order accesses to shared memory, each way in as few lines as it takes. All of them are right by the PTX
// ISA, so what a tool says of one is the tool's. `patterns NAME` runs one and exits with 0 where its result is right.

#include <cstdint>
#include <cstdio>
#include <cstring>

#define SYNC(barrier, threads) asm volatile("bar.sync %0, %1;" ::"n"(barrier), "n"(threads) : "memory")
#define ARRIVE(barrier, threads) asm volatile("bar.arrive %0, %1;" ::"n"(barrier), "n"(threads) : "memory")

__device__ uint32_t address(const void *pointer) { return static_cast<uint32_t>(__cvta_generic_to_shared(pointer)); }

__device__ int load(const int *pointer) { return *static_cast<const volatile int *>(pointer); }

__device__ void init(uint64_t *barrier, uint32_t count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address(barrier)), "r"(count) : "memory");
}

__device__ void arrive(uint64_t *barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address(barrier)) : "memory");
}

__device__ void wait(uint64_t *barrier, uint32_t parity) {
  uint32_t done = 0;
  while (!done)
    asm volatile(
        "{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
        : "=r"(done)
        : "r"(address(barrier)), "r"(parity)
        : "memory");
}

// Two warpgroups of three meet at a named barrier, both at the same instruction.
__global__ void one_site(int *out, const int *) {
  __shared__ int sums[2][128];
  int group = threadIdx.x / 128, thread = threadIdx.x % 128, total = 0;
  if (group == 2) return;
  for (int i = 0; i < 4; ++i) {
    sums[group][thread] = 7;
    SYNC(3, 256);
    total += load(&sums[0][thread & ~3]) + load(&sums[1][thread & ~3]);
    SYNC(3, 256);
  }
  out[thread] = total / 8;
}

// They meet at an instruction each: PTX asks that the threads of a warp execute the same bar.sync, not that all warps do.
__global__ void two_sites(int *out, const int *) {
  __shared__ int word;
  int group = threadIdx.x / 128, thread = threadIdx.x % 128;
  if (group == 0) {
    if (thread == 0) word = 7;
    SYNC(3, 256);
    __nanosleep(20);
  } else if (group == 1) {
    __nanosleep(10);
    SYNC(3, 256);
    out[thread] = load(&word);
  }
}

// One writes and arrives, the other waits and reads: the producer and consumer in the PTX ISA's section on barriers.
__global__ void arrive_and_sync(int *out, const int *) {
  __shared__ int words[128];
  int group = threadIdx.x / 128, thread = threadIdx.x % 128;
  if (group == 1) {
    words[thread] = 7;
    ARRIVE(1, 256);
  } else if (group == 0) {
    SYNC(1, 256);
    out[thread] = load(&words[(thread + 37) % 128]);
  }
}

// The same in both directions, again and again: each writes its words anew only after it has waited for the other, which
// has read them before it arrived.
__global__ void taking_turns(int *out, const int *) {
  __shared__ int words[2][128];
  int group = threadIdx.x / 128, thread = threadIdx.x % 128, total = 0;
  if (group == 0) {
    for (int i = 0; i < 4; ++i) {
      words[0][thread] = 7;
      ARRIVE(1, 256);
      SYNC(2, 256);
      total += load(&words[1][(thread + 37) % 128]);
    }
    out[thread] = total / 4;
  } else if (group == 1) {
    for (int i = 0; i < 4; ++i) {
      SYNC(1, 256);
      total += load(&words[0][(thread + 37) % 128]);
      words[1][thread] = 7;
      ARRIVE(2, 256);
    }
    if (total != 28) out[thread] = 0;
  }
}

// A warp reads a slot, and a producer that has waited for it fills the slot again. Either all lanes arrive, or one for
// all, after a __syncwarp.
template <bool one_lane>
__device__ void ring(int *out, const int *in) {
  __shared__ int slot[32];
  __shared__ uint64_t full, empty;
  uint32_t lane = threadIdx.x % 32;
  int total = 0;
  if (threadIdx.x == 0) {
    init(&full, 32);
    init(&empty, one_lane ? 1 : 32);
  }
  __syncthreads();
  for (uint32_t i = 0; i < 8; ++i) {
    if (threadIdx.x < 32) {
      if (i > 0) wait(&empty, (i - 1) % 2);
      slot[lane] = in[lane];
      arrive(&full);
    } else if (threadIdx.x < 64) {
      wait(&full, i % 2);
      total += load(slot + (lane + 5) % 32);
      if (one_lane) __syncwarp();
      if (!one_lane || lane == 0) arrive(&empty);
    }
  }
  if (threadIdx.x / 32 == 1)
    for (uint32_t i = lane; i < 128; i += 32) out[i] = total / 8;
}
__global__ void all_lanes_arrive(int *out, const int *in) { ring<false>(out, in); }
__global__ void one_lane_arrives(int *out, const int *in) { ring<true>(out, in); }

int main(int count, char **arguments) {
  const struct {
    const char *name;
    void (*kernel)(int *, const int *);
  } patterns[] = {
      {"one_site", one_site},         {"two_sites", two_sites},
      {"arrive_and_sync", arrive_and_sync}, {"taking_turns", taking_turns},
      {"all_lanes_arrive", all_lanes_arrive}, {"one_lane_arrives", one_lane_arrives},
  };
  int *out, *in, words[128];
  for (int &word : words) word = 7;
  cudaMalloc(&out, sizeof words);
  cudaMalloc(&in, sizeof words);
  cudaMemcpy(in, words, sizeof words, cudaMemcpyHostToDevice);
  for (auto pattern : patterns) {
    if (count < 2 || strcmp(pattern.name, arguments[1])) continue;
    pattern.kernel<<<1, 384>>>(out, in);
    cudaMemcpy(words, out, sizeof words, cudaMemcpyDeviceToHost);
    for (int word : words)
      if (word != 7) return 1;
    return cudaGetLastError() == cudaSuccess ? 0 : 1;
  }
  return fprintf(stderr, "no such pattern\n"), 2;
}
