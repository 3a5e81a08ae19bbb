/// Weights in formats that Baton does not read, for errors that name them.
#pragma once

#include <filesystem>
#include <set>
#include <string>

namespace baton {

/// What a file of weights among the names of a model's files is, and what to do: "model.gguf is GGUF, ...". Empty where the
/// model has weights that Baton reads, or where no name is that of weights.
std::string other_weights(const std::set<std::string>& names);

/// The same of the files in a folder.
std::string other_weights_in(const std::filesystem::path& folder);

}  // namespace baton
