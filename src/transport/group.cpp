#include "transport/group.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace moetax {
namespace {

template <std::size_t N>
void copy_text(std::string_view text, std::array<char, N>& to) {
  to = {};
  std::memcpy(to.data(), text.data(), std::min(text.size(), N - 1));
}

}  // namespace

void Offer::set_name(std::string_view text) {
  copy_text(text, name);
}

void Offer::set_why(std::string_view text) {
  copy_text(text, why);
}

std::string Offer::text() const {
  return call == Call::kSplit ? "split" : fmt::format("window \"{}\"", name.data());
}

}  // namespace moetax
