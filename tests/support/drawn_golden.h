/// A golden's checkpoint, whose weights are drawn from a seed.
#pragma once

#include <filesystem>

namespace baton::test {

/// A temporary folder with the configuration of a golden and the weights that its weights.txt describes, drawn by the rule
/// of tools/goldens/drawn.py. It exists as long as the object.
class DrawnGolden {
 public:
  /// `golden`: a folder of tests/goldens, or of a model that has weights, which is taken as it is. Throws if a file's bytes
  /// differ from what drawn.py drew.
  explicit DrawnGolden(const std::filesystem::path& golden);
  DrawnGolden(const DrawnGolden&) = delete;
  DrawnGolden& operator=(const DrawnGolden&) = delete;
  ~DrawnGolden();

  const std::filesystem::path& folder() const { return folder_; }

 private:
  std::filesystem::path temporary_;  ///< empty if nothing is drawn
  std::filesystem::path folder_;
};

}  // namespace baton::test
