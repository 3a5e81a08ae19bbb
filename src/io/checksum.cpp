/// Sums over files, by OpenSSL.
#include "io/checksum.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
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

static_assert(std::endian::native == std::endian::little, "damage_checksum reads words as the machine stores them");

constexpr std::size_t kLanes = 4;
constexpr std::size_t kWordBytes = sizeof(std::uint64_t);
constexpr std::size_t kStripeBytes = kLanes * kWordBytes;
/// Odd, so that multiplying by them is a bijection of 64-bit words.
constexpr std::uint64_t kFactor = 0x9fb21c651e98df25;
constexpr std::array<std::uint64_t, kLanes> kStarts = {0xa0761d6478bd642f, 0xe7037ed1a0b428db, 0x8ebc6af09c88c6e3,
                                                       0x589965cc75374cc3};

/// A bijection of `lane` for every word, and of `word` for every lane.
constexpr std::uint64_t absorb(std::uint64_t lane, std::uint64_t word) { return std::rotl(lane ^ word, 29) * kFactor; }

constexpr std::uint64_t mix(std::uint64_t x) {
  x ^= x >> 32;
  x *= kFactor;
  x ^= x >> 29;
  x *= kFactor;
  return x ^ (x >> 32);
}

}  // namespace

std::uint64_t damage_checksum(std::span<const std::byte> bytes, std::uint64_t seed) {
  std::array<std::uint64_t, kLanes> lanes = kStarts;
  const auto absorb_stripe = [&lanes](const std::byte* at) {
    std::array<std::uint64_t, kLanes> words;
    std::memcpy(words.data(), at, kStripeBytes);
    for (std::size_t lane = 0; lane < kLanes; ++lane) lanes[lane] = absorb(lanes[lane], words[lane]);
  };
  std::size_t at = 0;
  for (; bytes.size() - at >= kStripeBytes; at += kStripeBytes) absorb_stripe(bytes.data() + at);
  std::array<std::byte, kStripeBytes> rest = {};
  std::ranges::copy(bytes.subspan(at), rest.begin());
  absorb_stripe(rest.data());
  std::uint64_t sum = mix(seed ^ static_cast<std::uint64_t>(bytes.size()) * kFactor);
  for (const std::uint64_t lane : lanes) sum = mix(std::rotl(sum, 17) ^ lane);
  return sum;
}

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
