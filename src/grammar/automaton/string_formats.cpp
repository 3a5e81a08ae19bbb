/// Regular expressions of RFC 3339, 3986, 5321, 1123, 4291, 4122 and 6901.
#include "grammar/automaton/string_formats.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

namespace baton::grammar {

namespace {

std::string date_regex() {
  return R"((?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8])))"
         R"(|(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29))";
}

std::string time_regex() {
  return "(?:[01][0-9]|2[0-3]):[0-5][0-9]:(?:[0-5][0-9]|60)(?:\\.[0-9]+)?(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])";
}

std::string duration_regex() {
  const std::string time = "T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)";
  const std::string date = "(?:[0-9]+D|[0-9]+M(?:[0-9]+D)?|[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?)";
  return fmt::format("P(?:[0-9]+W|{}(?:{})?|{})", date, time, time);
}

constexpr std::string_view kOctet = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
constexpr std::string_view kLabel = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?";
constexpr std::string_view kPointer = "(?:/(?:[^~/]|~[01])*)*";

std::string ipv4_regex() { return fmt::format("(?:{0}\\.){{3}}{0}", kOctet); }

std::string hostname_regex() { return fmt::format("{0}(?:\\.{0})*", kLabel); }

std::string ipv6_regex() {
  const std::string group = "[0-9A-Fa-f]{1,4}";
  const std::string last = fmt::format("(?:{0}:{0}|{1})", group, ipv4_regex());
  std::string all = fmt::format("(?:{}:){{6}}{}", group, last);
  for (int n_before = 0; n_before <= 5; ++n_before) {
    const std::string before = n_before == 0 ? "" : fmt::format("(?:(?:{0}:){{0,{1}}}{0})?", group, n_before - 1);
    const std::string end = n_before == 5 ? group : fmt::format("(?:{}:){{{}}}{}", group, 4 - n_before, last);
    all += n_before == 0 ? fmt::format("|::(?:{}:){{5}}{}", group, last) : "";
    const std::string lead = fmt::format("(?:(?:{0}:){{0,{1}}}{0})?", group, n_before);
    all += fmt::format("|{}::{}", lead, end);
  }
  return all + fmt::format("|(?:(?:{0}:){{0,6}}{0})?::", group);
}

std::string email_regex() {
  const std::string atom = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+";
  return fmt::format("{0}(?:\\.{0})*@(?:{1}|\\[{2}\\])", atom, hostname_regex(), ipv4_regex());
}

/// RFC 3986, appendix A; a reference may leave out the scheme.
std::string uri_regex(bool is_reference) {
  const std::string percent = "%[0-9A-Fa-f]{2}";
  const std::string plain = "[A-Za-z0-9._~!$&'()*+,;=-]";
  const std::string path_character = fmt::format("(?:{}|{}|[:@])", plain, percent);
  const std::string user = fmt::format("(?:(?:{}|{}|:)*@)?", plain, percent);
  const std::string host =
      fmt::format("(?:\\[(?:{}|[vV][0-9A-Fa-f]+\\.[A-Za-z0-9._~!$&'()*+,;=:-]+)\\]|(?:{}|{})*)", ipv6_regex(), plain, percent);
  const std::string authority = fmt::format("//{}{}(?::[0-9]*)?(?:/{}*)*", user, host, path_character);
  const std::string absolute = fmt::format("/(?:{0}+(?:/{0}*)*)?", path_character);
  const std::string rootless = fmt::format("{0}+(?:/{0}*)*", path_character);
  const std::string tail = fmt::format("(?:\\?(?:{0}|[/?])*)?(?:#(?:{0}|[/?])*)?", path_character);
  const std::string full = fmt::format("[A-Za-z][A-Za-z0-9+.-]*:(?:{}|{}|{})?{}", authority, absolute, rootless, tail);
  if (!is_reference) return full;
  const std::string no_colon = fmt::format("(?:{}|{}|@)+(?:/{}*)*", plain, percent, path_character);
  return fmt::format("{}|(?:{}|{}|{})?{}", full, authority, absolute, no_colon, tail);
}

}  // namespace

StringFormat string_format(std::string_view name) {
  const auto checked = [](std::string regex) { return StringFormat{FormatUse::checked, std::move(regex)}; };
  if (name == "date") return checked(date_regex());
  if (name == "time") return checked(time_regex());
  if (name == "date-time") return checked(date_regex().insert(0, "(?:") + ")[Tt]" + time_regex());
  if (name == "duration") return checked(duration_regex());
  if (name == "email") return checked(email_regex());
  if (name == "hostname") return checked(hostname_regex());
  if (name == "ipv4") return checked(ipv4_regex());
  if (name == "ipv6") return checked(ipv6_regex());
  if (name == "uri") return checked(uri_regex(/*is_reference=*/false));
  if (name == "uri-reference") return checked(uri_regex(/*is_reference=*/true));
  if (name == "uuid") return checked("[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}");
  if (name == "json-pointer") return checked(std::string(kPointer));
  if (name == "relative-json-pointer") return checked(fmt::format("(?:0|[1-9][0-9]*)(?:#|{})", kPointer));
  constexpr std::array<std::string_view, 6> kRefused{"idn-email",     "idn-hostname", "iri",
                                                     "iri-reference", "uri-template", "regex"};
  if (std::find(kRefused.begin(), kRefused.end(), name) != kRefused.end()) return {FormatUse::refused};
  return {};
}

}  // namespace baton::grammar
