/// Reads flags and the environments of launchers.
#include "ranks/rank_place.h"

#include <array>
#include <charconv>
#include <string_view>

#include <fmt/format.h>

#include "ranks/rank_group.h"

namespace baton {
namespace {

/// The variables by which a launcher tells a process its place. Variables that a launcher does not set are null.
struct LauncherVariables {
  const char* rank;
  const char* world_size;
  const char* local_rank;
  const char* master_addr;
};
constexpr std::array kLaunchers = std::to_array<LauncherVariables>({
    {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR"},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "MASTER_ADDR"},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MASTER_ADDR"},
    {"JOB_COMPLETION_INDEX", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR"},
    {"LWS_WORKER_INDEX", "LWS_GROUP_SIZE", "LOCAL_RANK", "LWS_LEADER_ADDRESS"},
});

Result<int> number_of(const char* name, const std::string& text, int most) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0 || value > most)
    return fail(ErrorCode::invalid_request, fmt::format("{} must be a number from 0 to {}, got '{}'", name, most, text), name);
  return value;
}

/// The number in a variable; `otherwise` if it is not set.
Result<int> read_number(const ReadEnvironment& read, const char* name, int most, int otherwise) {
  const char* const text = read(name);
  return text == nullptr ? Result<int>(otherwise) : number_of(name, text, most);
}

Result<void> check_place(const RankPlace& place, int tensor_parallel_size, std::string_view source) {
  if (place.world_size != tensor_parallel_size)
    return fail(ErrorCode::invalid_request,
                fmt::format("--tensor-parallel-size {}: {} says that there are {} ranks; both must be equal",
                            tensor_parallel_size, source, place.world_size),
                "tensor_parallel_size");
  if (place.rank >= place.world_size)
    return fail(ErrorCode::invalid_request,
                fmt::format("rank {} is not among the {} ranks of --tensor-parallel-size: they are counted from 0", place.rank,
                            place.world_size),
                "rank");
  return {};
}

/// torchrun itself listens at MASTER_PORT while its processes run.
bool is_port_taken_by_launcher(const ReadEnvironment& read) {
  const char* const value = read("TORCHELASTIC_USE_AGENT_STORE");
  return value != nullptr && std::string_view(value) == "True";
}

/// Where rank 0 is reached: the flags, then the environment, then this host.
Result<void> find_address(const RankFlags& flags, const ReadEnvironment& read, const char* addr_name, RankPlace& place) {
  if (const char* const addr = read(addr_name); addr != nullptr && *addr != '\0') place.master_addr = addr;
  BATON_TRY(int port, read_number(read, "MASTER_PORT", 65'534, kDefaultMasterPort));
  if (is_port_taken_by_launcher(read)) ++port;
  if (!flags.master_addr.empty()) place.master_addr = flags.master_addr;
  if (flags.master_port > 0) port = flags.master_port;
  place.master_port = static_cast<std::uint16_t>(port);
  return {};
}

Result<std::optional<RankPlace>> ask_launchers(const RankFlags& flags, const ReadEnvironment& read) {
  for (const LauncherVariables& launcher : kLaunchers) {
    if (read(launcher.rank) == nullptr || read(launcher.world_size) == nullptr) continue;
    RankPlace place;
    BATON_TRY(place.world_size, read_number(read, launcher.world_size, 1 << 20, 1));
    if (place.world_size == 1) continue;
    BATON_TRY(place.rank, read_number(read, launcher.rank, 1 << 20, 0));
    // Pods of a job have devices of their own, counted from 0; the ranks of other launchers share those of their host.
    const bool is_pod = launcher.local_rank == std::string_view("LOCAL_RANK") && launcher.rank != std::string_view("RANK");
    BATON_TRY(place.local_rank, read_number(read, launcher.local_rank, 1 << 20, is_pod ? 0 : place.rank));
    BATON_TRY_VOID(find_address(flags, read, launcher.master_addr, place));
    BATON_TRY_VOID(check_place(place, flags.tensor_parallel_size, launcher.world_size));
    return std::optional(place);
  }
  return std::optional<RankPlace>();
}

}  // namespace

Result<RankPlace> find_rank_place(const RankFlags& flags, const ReadEnvironment& read) {
  if (flags.tensor_parallel_size < 1 || flags.tensor_parallel_size > kMaxRanks)
    return fail(ErrorCode::invalid_request,
                fmt::format("--tensor-parallel-size must be from 1 to {}, got {}", kMaxRanks, flags.tensor_parallel_size),
                "tensor_parallel_size");
  if (flags.rank >= 0 || flags.world_size > 0) {
    RankPlace place;
    if (flags.rank < 0)
      return fail(ErrorCode::invalid_request, fmt::format("--world-size {}: --rank is missing", flags.world_size), "rank");
    place.rank = flags.rank;
    place.world_size = flags.world_size > 0 ? flags.world_size : flags.tensor_parallel_size;
    BATON_TRY(place.local_rank, read_number(read, "LOCAL_RANK", 1 << 20, place.rank));
    BATON_TRY_VOID(find_address(flags, read, "MASTER_ADDR", place));
    BATON_TRY_VOID(check_place(place, flags.tensor_parallel_size, "--world-size"));
    return place;
  }
  if (flags.tensor_parallel_size == 1) return RankPlace{};
  BATON_TRY(std::optional<RankPlace> launched, ask_launchers(flags, read));
  if (launched) return *launched;
  if (!flags.master_addr.empty())
    return fail(ErrorCode::invalid_request, fmt::format("--master-addr {}: --rank is missing", flags.master_addr), "rank");
  RankPlace place;
  place.world_size = flags.tensor_parallel_size;
  place.master_port = static_cast<std::uint16_t>(flags.master_port);
  place.starts_others = true;
  return place;
}

}  // namespace baton
