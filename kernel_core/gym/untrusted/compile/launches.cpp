// Linked into a candidate's extension in front of the CUDA runtime: tells of each launch before it happens.
// What it tells is a claim, like all that is said in a candidate's process.
#include <cstring>
#include <vector>

#include <cuda.h>
#include <cuda_runtime.h>
#include <dlfcn.h>

extern "C" {

// Symbol; grid, block and bytes of shared memory; packed parameters.
using Watcher = void (*)(const char*, const unsigned*, const unsigned char*, unsigned long);
static Watcher watcher = nullptr;

__attribute__((visibility("default"))) void dojo_watch(Watcher one) { watcher = one; }

cudaError_t __cudaGetKernel(cudaKernel_t*, const void*);
cudaError_t __real_cudaLaunchKernel(const void*, dim3, dim3, void**, size_t, cudaStream_t);
cudaError_t __real___cudaLaunchKernel(cudaKernel_t, dim3, dim3, void**, size_t, cudaStream_t);

static void tell(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments, size_t shared) {
    if (watcher == nullptr) return;
    static void* driver = dlopen("libcuda.so.1", RTLD_LAZY);
    static auto name_of = (CUresult(*)(const char**, CUkernel))dlsym(driver, "cuKernelGetName");
    static auto parameter_of =
        (CUresult(*)(CUkernel, size_t, size_t*, size_t*))dlsym(driver, "cuKernelGetParamInfo");
    const char* name = "";
    if (name_of(&name, (CUkernel)kernel) != CUDA_SUCCESS) return;
    std::vector<unsigned char> packed;
    size_t place, size;
    for (size_t i = 0; parameter_of((CUkernel)kernel, i, &place, &size) == CUDA_SUCCESS; ++i) {
        if (packed.size() < place + size) packed.resize(place + size);
        std::memcpy(packed.data() + place, arguments[i], size);
    }
    const unsigned sizes[] = {grid.x, grid.y, grid.z, block.x, block.y, block.z, (unsigned)shared};
    watcher(name, sizes, packed.data(), packed.size());
}

cudaError_t __wrap___cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments,
                                      size_t shared, cudaStream_t stream) {
    tell(kernel, grid, block, arguments, shared);
    return __real___cudaLaunchKernel(kernel, grid, block, arguments, shared, stream);
}

cudaError_t __wrap_cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void** arguments,
                                    size_t shared, cudaStream_t stream) {
    cudaKernel_t kernel;
    if (__cudaGetKernel(&kernel, function) == cudaSuccess) tell(kernel, grid, block, arguments, shared);
    return __real_cudaLaunchKernel(function, grid, block, arguments, shared, stream);
}
}
