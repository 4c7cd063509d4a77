// Calls a kernel of a bundle from C++, without Python, and checks what it computes: d = a @ b^T in bf16.
// bundles.md says how it is built, for the bundle `kernels` of gemm_bf16_sm90a.
//
// It asks the CUDA driver for memory; a program with CUDA's headers would call cudaMalloc.

#include <dlfcn.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "kernels.h"

namespace {

[[noreturn]] void stop(const char *what, const char *why) {
  std::fprintf(stderr, "%s: %s\n", what, why);
  std::exit(2);
}

template <class... T>
void driver(const char *name, T... values) {
  static void *library = dlopen("libcuda.so.1", RTLD_NOW);
  auto function = reinterpret_cast<int (*)(T...)>(library ? dlsym(library, name) : nullptr);
  if (!function) stop(name, "there is no CUDA driver");
  if (int fault = function(values...)) stop(name, ("error " + std::to_string(fault)).c_str());
}

using Pointer = unsigned long long;

void *allocate(size_t bytes) {
  Pointer found = 0;
  driver("cuMemAlloc_v2", &found, bytes + 1);
  driver("cuMemsetD8_v2", found, static_cast<unsigned char>(0), bytes);
  return reinterpret_cast<void *>(found);
}

uint16_t to_bf16(float value) {  // of few digits
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return static_cast<uint16_t>(bits >> 16);
}

float from_bf16(uint16_t value) {
  uint32_t bits = static_cast<uint32_t>(value) << 16;
  float found;
  std::memcpy(&found, &bits, sizeof found);
  return found;
}

// Integers from -1 to 1, whose sums of products bf16 mostly holds, and f32 always.
std::vector<uint16_t> fill(size_t count, uint32_t seed) {
  std::vector<uint16_t> values(count);
  for (auto &value : values) {
    seed = seed * 1664525u + 1013904223u;
    value = to_bf16(static_cast<float>(static_cast<int>(seed >> 30) % 3 - 1));
  }
  return values;
}

}  // namespace

int main(int count, char **words) {
  int64_t m = count > 1 ? std::atoll(words[1]) : 512, n = count > 2 ? std::atoll(words[2]) : 4096;
  int64_t k = count > 3 ? std::atoll(words[3]) : 4096;

  kernels_device device;
  if (kernels_abi() != KERNELS_ABI) stop("kernels.h", "it is of another bundle");
  if (kernels_open_device(0, &device)) stop("device 0", kernels_error());
  int handle = 0;
  void *context = nullptr;
  driver("cuDeviceGet", &handle, 0);
  driver("cuDevicePrimaryCtxRetain", &context, handle);
  driver("cuCtxSetCurrent", context);

  std::vector<uint16_t> a = fill(m * k, 1), b = fill(n * k, 2), d(m * n);
  kernels_args_gemm_bf16_sm90a args{};
  args.m = m, args.n = n, args.k = k;
  args.a = allocate(a.size() * 2), args.a_strides[0] = k, args.a_strides[1] = 1;
  args.b = allocate(b.size() * 2), args.b_strides[0] = k, args.b_strides[1] = 1;
  args.d = allocate(d.size() * 2), args.d_strides[0] = n, args.d_strides[1] = 1;
  driver("cuMemcpyHtoD_v2", reinterpret_cast<Pointer>(args.a), static_cast<const void *>(a.data()), a.size() * 2);
  driver("cuMemcpyHtoD_v2", reinterpret_cast<Pointer>(args.b), static_cast<const void *>(b.data()), b.size() * 2);

  kernels_call call{};
  call.device = &device;
  int32_t tiling = kernels_pick_gemm_bf16_sm90a(&device, 0, &args);
  if (tiling < 0) stop("pick", kernels_error());
  if (kernels_scratch_gemm_bf16_sm90a(&device, 0, &args, &call.workspace_bytes, &call.zeroed_bytes))
    stop("scratch", kernels_error());
  call.workspace = allocate(call.workspace_bytes), call.zeroed = allocate(call.zeroed_bytes);

  // The first launch loads the kernel; the others go to the default stream as well.
  const int launches = 1000;
  for (int i = 0; i < launches; i++) {
    if (kernels_run_gemm_bf16_sm90a(&call, &args)) stop("run", kernels_error());
    if (i % 100 == 0) driver("cuCtxSynchronize");
  }
  driver("cuCtxSynchronize");
  auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 100; i++) kernels_run_gemm_bf16_sm90a(&call, &args);
  std::chrono::duration<double, std::micro> spent = std::chrono::steady_clock::now() - start;
  driver("cuCtxSynchronize");

  driver("cuMemcpyDtoH_v2", static_cast<void *>(d.data()), reinterpret_cast<Pointer>(args.d), d.size() * 2);
  int64_t wrong = 0, looked = 0;
  for (int64_t row = 0; row < m; row += 1 + m / 37)
    for (int64_t column = 0; column < n; column += 1 + n / 41) {
      float sum = 0;
      for (int64_t i = 0; i < k; i++) sum += from_bf16(a[row * k + i]) * from_bf16(b[column * k + i]);
      float found = from_bf16(d[row * n + column]), apart = found > sum ? found - sum : sum - found;
      wrong += !(apart <= (sum < 0 ? -sum : sum) / 256);
      looked++;
    }
  std::printf("%s %s: %lld of %lld elements are wrong; a call takes %.2f us of the host\n", device.name,
              kernels_tiling_gemm_bf16_sm90a(tiling), static_cast<long long>(wrong), static_cast<long long>(looked),
              spent.count() / 100);
  return wrong != 0;
}
