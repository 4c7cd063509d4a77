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
static char names[1 << 16];
static uint32_t used;
int _cudaLibraryGetKernel(void **kernel, void *library, const char *name) {
  *kernel = names + used; /* what launches name their kernel by; `name` may be on the stack */
  while ((names[used++] = *name++))
    if (used == sizeof names) return 2;
  return 0;
}
int _cudaLibraryUnload(void *library) { return 0; }

/* cuda_dialect: loads the library of a module once. That is left out where there is but one kernel to be launched. */
static int several, loaded;
void ptx_machine_has_several_kernels(void) { several = 1; }
int cuda_dialect_init_library_once(void *library, void *init, int (*load)(void *library, int device), void *set_error) {
  if (!several || loaded) return 0;
  loaded = 1;
  return load(library, 0);
}
void cuda_dialect_unload_library_once(void *a) {}
void CuteDSLRT_TVMFFISetRaisedCudaError(void (*set_error)(const char *, const char **, int32_t), int32_t code) {
  const char *parts[] = {"the simulated launch failed"};
  set_error("RuntimeError", parts, 1);
}
