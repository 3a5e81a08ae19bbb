/// The flags of tensor parallelism.
#include <CLI/CLI.hpp>

#include "cli/options.h"
#include "ranks/rank_group.h"

namespace baton {

void add_rank_options(CLI::App& app, RankFlags& flags) {
  const auto value = [&app](const char* name, auto& stored, const char* help) {
    return app.add_option(name, stored, help)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)
        ->capture_default_str()
        ->group("Tensor parallelism");
  };
  value("--tensor-parallel-size", flags.tensor_parallel_size,
        "Processes (-tp), each with a device and a part of every layer; they run on this host unless --rank or a launcher "
        "(torchrun, mpirun, Kubernetes) says which one this is: see docs/parallel.md")
      ->check(CLI::Range(1, kMaxRanks));
  value("--rank", flags.rank, "Which of them this process is, if somebody else starts all: from 0")
      ->check(CLI::Range(0, kMaxRanks - 1))
      ->default_str("");
  value("--world-size", flags.world_size, "Number of ranks beside --rank; must equal --tensor-parallel-size")
      ->check(CLI::Range(1, kMaxRanks))
      ->default_str("");
  value("--master-addr", flags.master_addr, "Host name or address of rank 0 (MASTER_ADDR; 127.0.0.1)")->default_str("");
  value("--master-port", flags.master_port, "Port of rank 0 for the other ranks (MASTER_PORT; 29500)")
      ->check(CLI::Range(1, 65535))
      ->default_str("");
  value("--rank-hang-timeout", flags.rank_hang_timeout_s,
        "Seconds without a sign of life after which a rank is given up and the service ends; rank 0's value counts")
      ->check(CLI::Range(1.0, 3600.0));
}

}  // namespace baton
