/// Records every kernel that a program runs, with CUPTI. The driver loads this library into the program, so the program
/// needs no change:
///
///     g++ -O2 -shared -fPIC -I/usr/local/cuda/include tools/kernel_timeline.cpp -o libtimeline.so -L/usr/local/cuda/lib64 -lcupti
///     CUDA_INJECTION64_PATH=$PWD/libtimeline.so BATON_TIMELINE=kernels.tsv baton bench decode ...
///     python3 tools/kernel_timeline.py kernels.tsv
///
/// A line of the file: start and end in ns, blocks, threads of a block, KiB of shared memory that the multiprocessors were
/// set to, name. Copies and fills are lines of their own: "copy" or "fill" with the bytes in the place of blocks. With
/// BATON_TIMELINE_CALLS=1 every call of CUDA's runtime and driver, too: "call NAME", the thread in the place of blocks.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <vector>

#include <cupti.h>

namespace {

struct Kernel {
  std::uint64_t start;
  std::uint64_t end;
  long long n_blocks;
  int n_threads;
  unsigned shared_bytes;
  std::string name;
};

std::mutex mutex;
std::vector<Kernel> kernels;

void give_buffer(std::uint8_t** buffer, std::size_t* size, std::size_t* most_records) {
  *size = std::size_t{8} << 20;
  *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(8, *size));
  *most_records = 0;
}

void take_buffer(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t, std::size_t valid_size) {
  const std::lock_guard lock(mutex);
  CUpti_Activity* record = nullptr;
  while (cuptiActivityGetNextRecord(buffer, valid_size, &record) == CUPTI_SUCCESS) {
    if (record->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
      const auto& copy = *reinterpret_cast<const CUpti_ActivityMemcpy5*>(record);
      kernels.push_back({copy.start, copy.end, static_cast<long long>(copy.bytes), 0, 0, "copy"});
    } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMSET) {
      const auto& fill = *reinterpret_cast<const CUpti_ActivityMemset4*>(record);
      kernels.push_back({fill.start, fill.end, static_cast<long long>(fill.bytes), 0, 0, "fill"});
    } else if (record->kind == CUPTI_ACTIVITY_KIND_RUNTIME || record->kind == CUPTI_ACTIVITY_KIND_DRIVER) {
      const auto& call = *reinterpret_cast<const CUpti_ActivityAPI*>(record);
      const char* name = nullptr;
      const auto domain =
          record->kind == CUPTI_ACTIVITY_KIND_RUNTIME ? CUPTI_CB_DOMAIN_RUNTIME_API : CUPTI_CB_DOMAIN_DRIVER_API;
      if (cuptiGetCallbackName(domain, call.cbid, &name) != CUPTI_SUCCESS) name = "unknown";
      kernels.push_back({call.start, call.end, static_cast<long long>(call.threadId), 0, 0, std::string("call ") + name});
    }
    if (record->kind != CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) continue;
    const auto& kernel = *reinterpret_cast<const CUpti_ActivityKernel10*>(record);
    kernels.push_back({kernel.start, kernel.end, 1LL * kernel.gridX * kernel.gridY * kernel.gridZ,
                       kernel.blockX * kernel.blockY * kernel.blockZ, kernel.sharedMemoryExecuted, kernel.name});
  }
  std::free(buffer);
}

void write_kernels() {
  cuptiActivityFlushAll(1);
  const std::lock_guard lock(mutex);
  std::FILE* const file = std::fopen(std::getenv("BATON_TIMELINE"), "w");
  if (file == nullptr) return;
  for (const Kernel& kernel : kernels)
    std::fprintf(file, "%llu\t%llu\t%lld\t%d\t%u\t%s\n", static_cast<unsigned long long>(kernel.start),
                 static_cast<unsigned long long>(kernel.end), kernel.n_blocks, kernel.n_threads, kernel.shared_bytes >> 10,
                 kernel.name.c_str());
  std::fclose(file);
}

}  // namespace

/// The driver calls this when the program initialises CUDA.
extern "C" int InitializeInjection() {
  if (std::getenv("BATON_TIMELINE") == nullptr) return 1;
  cuptiActivityRegisterCallbacks(give_buffer, take_buffer);
  cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMCPY);
  cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMSET);
  if (std::getenv("BATON_TIMELINE_CALLS") != nullptr) {
    cuptiActivityEnable(CUPTI_ACTIVITY_KIND_RUNTIME);
    cuptiActivityEnable(CUPTI_ACTIVITY_KIND_DRIVER);
  }
  std::atexit(write_kernels);
  return 1;
}
