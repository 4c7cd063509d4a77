/* The part of CuTe DSL's runtime library that a compiled host function calls, with launches handed to a callback. */
#include <stdint.h>

typedef int (*launch_callback)(void *config, void *kernel, void **arguments);
static launch_callback on_launch;

void ptx_machine_on_launch(launch_callback callback) { on_launch = callback; }

/* The linker's name of the compiled function, a TVMFFISafeCallType. */
extern int HOST_FUNCTION(void *self, const void *arguments, int32_t count, void *result);
int ptx_machine_call(const void *arguments, int32_t count, void *result) {
  return HOST_FUNCTION(0, arguments, count, result);
}

int _cudaLaunchKernelEx(void *config, void *kernel, void **arguments) { return on_launch(config, kernel, arguments); }

int _cudaGetDevice(int *device) { *device = 0; return 0; }
int _cudaSetDevice(int device) { return 0; }
int _cudaDeviceGetAttribute(int *value, int attribute, int device) { *value = 232448; return 0; }
int _cudaFuncSetAttribute(void *function, int attribute, int value) { return 0; }
int _cudaKernelSetAttributeForDevice(void *kernel, int attribute, int value, int device) { return 0; }
int _cuKernelGetAttribute(int *value, int attribute, void *kernel, int device) { *value = 0; return 0; }
int _cudaLibraryLoadData(void **library, const void *code) { *library = (void *)1; return 0; }
int _cudaLibraryGetKernel(void **kernel, void *library, const char *name) { *kernel = (void *)2; return 0; }
int _cudaLibraryUnload(void *library) { return 0; }

/* cuda_dialect: loads the library of a module once. */
int cuda_dialect_init_library_once(void *a, void *b, void *c, void *d) { return 0; }
void cuda_dialect_unload_library_once(void *a) {}
void CuteDSLRT_TVMFFISetRaisedCudaError(void (*set_error)(const char *, const char **, int32_t), int32_t code) {
  const char *parts[] = {"the simulated launch failed"};
  set_error("RuntimeError", parts, 1);
}
