"""C of a bundle that is the same for all kernels, with the bundle's name in place of BUNDLE."""

# Words of C and C++ that Python has not.
_WORDS = """
    alignas alignof asm auto bitand bitor bool case catch char compl concept const constexpr decltype default delete do
    double enum explicit export extern float friend goto inline int long mutable namespace new noexcept not_eq nullptr
    operator private protected public register requires restrict short signed sizeof static struct switch template this
    throw typedef typeid typename union unsigned using virtual void volatile wchar_t xor
"""
RESERVED = frozenset(_WORDS.split())

DECLARATIONS = """\
/* Every function but BUNDLE_error returns -1 where it failed, and BUNDLE_error then says why. */

/* A CUDA device as its driver describes it; 0 stands for what is not known. */
typedef struct BUNDLE_device {
  int32_t index;
  int32_t sms;
  int32_t major, minor; /* compute capability */
  int32_t clock_khz, memory_clock_khz, memory_bus_bits;
  int32_t reserved; /* 0 */
  int64_t l2_bytes;
  char name[256];
} BUNDLE_device;

/* What a launch runs on. The device is the current one of the thread. Scratch is on it, aligned to 256 bytes:
   `workspace` with any contents; `zeroed` with zeros before the first launch, and every launch leaves zeros there.
   Launches that may run at the same time need scratch of their own. After one that was aborted, zero it again. */
typedef struct BUNDLE_call {
  const BUNDLE_device *device;
  void *stream; /* a CUstream, or cudaStream_t */
  int32_t sms;  /* that it may use at most; 0: all */
  int32_t reserved; /* 0 */
  void *workspace;
  int64_t workspace_bytes;
  void *zeroed;
  int64_t zeroed_bytes;
} BUNDLE_call;

/* Why the last call of this thread failed. */
const char *BUNDLE_error(void);

/* ABI of the library, which is BUNDLE_ABI where this header belongs to it. */
int32_t BUNDLE_abi(void);

/* Fills `device` in, from the CUDA driver. */
int32_t BUNDLE_open_device(int32_t index, BUNDLE_device *device);
"""

# Integers of translated functions.
NUMBERS = """\
typedef __int128 num;

static inline num floor_div(num a, num b) {
  if (!(((unsigned __int128)a | (unsigned __int128)b) >> 63)) return (num)((uint64_t)a / (uint64_t)b);
  num q = a / b;
  return q - (q * b != a && (a < 0) != (b < 0));
}
static inline num ceil_div(num a, num b) { return a > 0 && b > 0 ? floor_div(a - 1, b) + 1 : -floor_div(-a, b); }
static inline num floor_mod(num a, num b) { return a - floor_div(a, b) * b; }
static inline num num_min(num a, num b) { return a < b ? a : b; }
static inline num num_max(num a, num b) { return a > b ? a : b; }
static inline num num_abs(num a) { return a < 0 ? -a : a; }
"""

HEAD = """\
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include <tvm/ffi/c_api.h>
#include <tvm/ffi/extra/c_env_api.h>

/* Since 2.34 glibc has these in versions that older ones lack: a bundle runs where its kernels do. */
#if defined __GLIBC__ && defined __x86_64__
#define FIRST_GLIBC "GLIBC_2.2.5"
#elif defined __GLIBC__ && defined __aarch64__
#define FIRST_GLIBC "GLIBC_2.17"
#endif
#ifdef FIRST_GLIBC
__asm__(".symver dlopen,dlopen@" FIRST_GLIBC);
__asm__(".symver dlsym,dlsym@" FIRST_GLIBC);
__asm__(".symver dlerror,dlerror@" FIRST_GLIBC);
#endif

#define EXPORT __attribute__((visibility("default")))
#define MOST_EXTENT INT32_MAX
#define ALIGNMENT 256

static _Thread_local char message[2048];

static int fail(const char *format, ...) {
  va_list values;
  va_start(values, format);
  vsnprintf(message, sizeof message, format, values);
  va_end(values);
  return -1;
}
"""

COMMON = """\
EXPORT const char *BUNDLE_error(void) { return message; }
EXPORT int32_t BUNDLE_abi(void) { return BUNDLE_ABI; }

EXPORT int32_t BUNDLE_open_device(int32_t index, BUNDLE_device *device) {
  void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!driver) return fail("there is no CUDA driver: %s", dlerror());
  int (*start)(unsigned) = (int (*)(unsigned))dlsym(driver, "cuInit");
  int (*find)(int *, int) = (int (*)(int *, int))dlsym(driver, "cuDeviceGet");
  int (*name)(char *, int, int) = (int (*)(char *, int, int))dlsym(driver, "cuDeviceGetName");
  int (*read)(int *, int, int) = (int (*)(int *, int, int))dlsym(driver, "cuDeviceGetAttribute");
  if (!start || !find || !name || !read) return fail("libcuda.so.1 is not a CUDA driver");
  int handle, l2 = 0;
  int fault = start(0);
  if (!fault) fault = find(&handle, index);
  memset(device, 0, sizeof *device);
  device->index = index;
  if (!fault) fault = name(device->name, sizeof device->name, handle);
  /* CUdevice_attribute, by number. */
  const struct { int number; int *value; } wanted[] = {
      {16, &device->sms}, {75, &device->major}, {76, &device->minor}, {13, &device->clock_khz},
      {36, &device->memory_clock_khz}, {37, &device->memory_bus_bits}, {38, &l2},
  };
  for (size_t i = 0; !fault && i < sizeof wanted / sizeof *wanted; i++)
    fault = read(wanted[i].value, wanted[i].number, handle);
  device->l2_bytes = l2;
  return fault ? fail("CUDA device %d: the driver answers with error %d", index, fault) : 0;
}

/* A call of a compiled kernel that is being put together. */
typedef struct {
  const BUNDLE_call *call;
  int values, tensors;
  int64_t workspace, zeroed; /* bytes that are taken */
  TVMFFIAny value[MOST_VALUES];
  DLTensor tensor[MOST_VALUES];
} frame;

static void put_int(frame *f, int64_t number) {
  f->value[f->values++] = (TVMFFIAny){.type_index = kTVMFFIInt, .v_int64 = number};
}

static void put_float(frame *f, double number) {
  f->value[f->values++] = (TVMFFIAny){.type_index = kTVMFFIFloat, .v_float64 = number};
}

static int put_tensor(
    frame *f, const char *name, const void *data, DLDataType dtype, int rank, int64_t *shape, int64_t *strides) {
  if (!data) return fail("%s is NULL", name);
  DLTensor *tensor = &f->tensor[f->tensors++];
  *tensor = (DLTensor){
      .data = (void *)data, .device = {kDLCUDA, f->call->device->index}, .ndim = rank, .dtype = dtype, .shape = shape,
      .strides = strides,
  };
  f->value[f->values++] = (TVMFFIAny){.type_index = kTVMFFIDLTensorPtr, .v_ptr = tensor};
  return 0;
}

static int64_t align(num bytes) { return (int64_t)ceil_div(bytes, ALIGNMENT) * ALIGNMENT; }

/* shape, stride: of one dim. */
static int put_scratch(
    frame *f, const char *name, int zeroed, DLDataType dtype, num size, int64_t *shape, int64_t *stride) {
  if (size > MOST_EXTENT)
    return fail("a kernel cannot count the %lld elements of its scratch %s", (long long)size, name);
  int64_t *taken = zeroed ? &f->zeroed : &f->workspace;
  void *base = zeroed ? f->call->zeroed : f->call->workspace;
  int64_t held = zeroed ? f->call->zeroed_bytes : f->call->workspace_bytes, begin = *taken;
  *taken += align(size * (dtype.bits / 8));
  if (*taken > held)
    return fail("%s has %lld bytes, and the call needs more: ask BUNDLE_scratch_... for the bytes",
                zeroed ? "zeroed" : "workspace", (long long)held);
  *shape = (int64_t)size;
  *stride = 1;
  return put_tensor(f, zeroed ? "zeroed" : "workspace", base ? (char *)base + begin : 0, dtype, 1, shape, stride);
}

/* A copy that lies so many bytes into the workspace. */
static int put_copy(frame *f, const char *name, int64_t begin, DLDataType dtype, num size, int rank, int64_t *shape,
                    int64_t *strides) {
  if (size > MOST_EXTENT)
    return fail("a kernel cannot count the %lld elements of its scratch %s", (long long)size, name);
  if (begin + align(size * (dtype.bits / 8)) > f->call->workspace_bytes)
    return fail("workspace has %lld bytes, and the call needs more: ask BUNDLE_scratch_... for the bytes",
                (long long)f->call->workspace_bytes);
  char *base = f->call->workspace;
  return put_tensor(f, "workspace", base ? base + begin : 0, dtype, rank, shape, strides);
}

static int check_device(const BUNDLE_device *device, int major, int minor) {
  if (!device) return fail("device is NULL");
  if (device->major == major && device->minor == minor) return 0;
  return fail("device %d (%s) is of compute capability %d.%d, and the kernel was built for %d.%d", device->index,
              device->name, device->major, device->minor, major, minor);
}

/* SMs that a launch may use. */
static int count_sms(const BUNDLE_device *device, int32_t sms, num fewest) {
  if (sms < 0 || (sms && sms < fewest))
    return fail("sms is %d; pass at least %d, or 0 for all", sms, (int)fewest);
  return sms && sms < device->sms ? sms : device->sms;
}

static int run_kernel(frame *f, TVMFFISafeCallType kernel) {
  TVMFFIStreamHandle before = 0;
  TVMFFIAny result = {.type_index = kTVMFFINone};
  int32_t index = f->call->device->index;
  if (TVMFFIEnvSetStream(kDLCUDA, index, f->call->stream, &before)) return fail("the stream was not set");
  int code = kernel(0, f->value, f->values, &result);
  TVMFFIEnvSetStream(kDLCUDA, index, before, 0);
  if (!code) return 0;
  TVMFFIObjectHandle raised = 0;
  TVMFFIErrorMoveFromRaised(&raised);
  if (!raised) return fail("the kernel failed with code %d", code);
  const TVMFFIErrorCell *error = (const TVMFFIErrorCell *)((const char *)raised + sizeof(TVMFFIObject));
  fail("%.*s: %.*s", (int)error->kind.size, error->kind.data, (int)error->message.size, error->message.data);
  TVMFFIObjectDecRef(raised);
  return -1;
}
"""
