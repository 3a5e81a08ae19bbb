/// Sums over files, by OpenSSL.
#include "io/checksum.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <memory>
#include <system_error>
#include <vector>

#include <fmt/format.h>
#include <openssl/evp.h>

namespace baton {
namespace {

constexpr std::size_t kSha256Digits = 64;
constexpr std::size_t kGitDigits = 40;

constexpr std::size_t kReadAtATime = std::size_t{1} << 20;

/// A sum of bytes that come piece by piece.
class Digest {
 public:
  explicit Digest(const EVP_MD* kind) : sum_(EVP_MD_CTX_new(), &EVP_MD_CTX_free) {
    is_right_ = sum_ != nullptr && EVP_DigestInit_ex(sum_.get(), kind, nullptr) == 1;
  }
  void add(std::string_view bytes) { is_right_ = is_right_ && EVP_DigestUpdate(sum_.get(), bytes.data(), bytes.size()) == 1; }
  /// In hexadecimal digits.
  Result<std::string> finish() {
    std::array<unsigned char, EVP_MAX_MD_SIZE> digest = {};
    unsigned int size = 0;
    if (!is_right_ || EVP_DigestFinal_ex(sum_.get(), digest.data(), &size) != 1)
      return fail(ErrorCode::internal, "OpenSSL computes no checksums");
    std::string text;
    for (unsigned int i = 0; i < size; ++i) text += fmt::format("{:02x}", digest[i]);
    return text;
  }

 private:
  std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> sum_;
  bool is_right_ = false;
};

Result<std::string> digest_of_file(const std::filesystem::path& path, const EVP_MD* kind, std::string_view before) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return fail(ErrorCode::not_found, fmt::format("cannot read {}", path.string()));
  Digest digest(kind);
  digest.add(before);
  std::vector<char> bytes(kReadAtATime);
  while (file) {
    file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    digest.add({bytes.data(), static_cast<std::size_t>(file.gcount())});
  }
  if (file.bad()) return fail(ErrorCode::io, fmt::format("cannot read {}", path.string()));
  return digest.finish();
}

}  // namespace

Result<std::string> sha256_of_file(const std::filesystem::path& path) { return digest_of_file(path, EVP_sha256(), ""); }

Result<std::string> sha256_of_text(std::string_view text) {
  Digest digest(EVP_sha256());
  digest.add(text);
  return digest.finish();
}

Result<std::string> git_blob_of_file(const std::filesystem::path& path) {
  std::error_code error;
  const auto size_bytes = std::filesystem::file_size(path, error);
  if (error) return fail(ErrorCode::not_found, fmt::format("cannot read {}: {}", path.string(), error.message()));
  std::string before = fmt::format("blob {}", size_bytes);
  before += '\0';
  return digest_of_file(path, EVP_sha1(), before);
}

bool is_checksum(std::string_view etag) {
  const bool is_hex = etag.find_first_not_of("0123456789abcdef") == std::string_view::npos;
  return is_hex && (etag.size() == kSha256Digits || etag.size() == kGitDigits);
}

Result<void> check_against_etag(const std::filesystem::path& path, std::string_view etag) {
  if (!is_checksum(etag)) return {};
  const bool is_sha256 = etag.size() == kSha256Digits;
  BATON_TRY(const std::string sum, is_sha256 ? sha256_of_file(path) : git_blob_of_file(path));
  if (sum == etag) return {};
  return fail(ErrorCode::invalid_data, fmt::format("the {} of {} is {}, and {} was announced",
                                                   is_sha256 ? "sha256" : "git blob", path.string(), sum, etag));
}

}  // namespace baton
