#include "trace/kineto_region.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace moetax {
namespace {

namespace json = simdjson::ondemand;

bool is_blank(char c) {
  return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

const char* skip_blanks(const char* at, const char* end) {
  while (at < end && is_blank(*at)) ++at;
  return at;
}

// The end of the object that begins at `begin`; null if it does not close before `end`.
const char* closing_brace(const char* begin, const char* end) {
  int depth = 0;
  bool in_string = false;
  for (const char* at = begin; at < end; ++at) {
    if (*at == '"') in_string = !in_string;
    if (in_string && *at == '\\') ++at;
    if (in_string) continue;
    if (*at == '{') ++depth;
    if (*at == '}' && --depth == 0) return at + 1;
  }
  return nullptr;
}

// What follows the bracket that closes the list: nothing, another key, or the end of the object.
bool ends_list(const char* at, const char* end) {
  at = skip_blanks(at, end);
  if (at == end || *at == '}') return true;
  if (*at != ',') return false;
  at = skip_blanks(at + 1, end);
  return at < end && *at == '"';
}

}  // namespace

const char* next_boundary(const char* from, const char* end) {
  while (from < end) {
    const auto* brace = static_cast<const char*>(std::memchr(from, '}', static_cast<std::size_t>(end - from)));
    if (!brace) return nullptr;
    from = brace + 1;
    const char* next = skip_blanks(from, end);
    if (next == end) continue;
    if (*next == ']' && ends_list(next + 1, end)) return from;
    if (*next != ',') continue;
    next = skip_blanks(next + 1, end);
    if (next < end && *next == '{') return from;
  }
  return nullptr;
}

const char* last_boundary(const char* begin, const char* end) {
  while (begin < end) {
    const auto* brace = static_cast<const char*>(memrchr(begin, '{', static_cast<std::size_t>(end - begin)));
    if (!brace) return nullptr;
    end = brace;
    const auto back = [&](const char* at) {
      while (at > begin && is_blank(at[-1])) --at;
      return at;
    };
    const char* at = back(brace);
    if (at == begin || at[-1] != ',') continue;
    at = back(at - 1);
    if (at > begin && at[-1] == '}') return at;
  }
  return nullptr;
}

RegionEnd KinetoRegions::take(char* begin, char* end, bool last, std::int64_t offset) {
  RegionEnd reached{begin};
  const std::array<char, 2> after{end[0], end[1]};
  const bool trouble = take_sound(begin, end, reached);
  std::copy(after.begin(), after.end(), end);
  if (!trouble) return reached;
  return take_damaged(reached.at, end, last, offset + (reached.at - begin));
}

bool KinetoRegions::take_sound(char* begin, char* end, RegionEnd& reached) {
  begin[-1] = '[';
  end[0] = ']';
  end[1] = ' ';  // where an unfinished event makes simdjson look for more
  const auto length = static_cast<std::size_t>(end - begin) + 2;
  json::document document;
  json::array list;
  if (parser_.iterate(begin - 1, length, length + simdjson::SIMDJSON_PADDING).get(document)) return true;
  if (document.get_array().get(list)) return true;
  for (auto element : list) {
    json::object event;
    if (element.get_object().get(event)) return true;
    if (events_.take(event)) return true;
    if (document.current_location().get(reached.at)) return true;
  }
  reached.list_ended = reached.at != end;
  if (reached.list_ended) ++reached.at;
  return false;
}

RegionEnd KinetoRegions::take_damaged(const char* begin, const char* end, bool last, std::int64_t offset) {
  constexpr std::ptrdiff_t kLongestSearch = 1 << 16;  // a quote too many would make each search as long as the region
  const char* at = begin;
  for (;;) {
    while (at < end && (is_blank(*at) || *at == ',')) ++at;
    if (at == end) return {end};
    if (*at == ']') return {at + 1, true};
    const char* boundary = next_boundary(at, end);
    if (boundary && take_one(at, boundary)) {
      at = boundary;
      continue;
    }
    const char* closed = closing_brace(at, std::min(end, at + std::min(end - at, kLongestSearch)));
    if (closed && take_one(at, closed)) {
      at = closed;
      continue;
    }
    if (!boundary && !closed && !last) return {at};
    count_damage(offset + (at - begin));
    at = boundary ? boundary : closed ? closed : end;
  }
}

bool KinetoRegions::take_one(const char* begin, const char* end) {
  if (*begin != '{') return false;
  copy_.assign(begin, end);
  copy_.reserve(copy_.size() + simdjson::SIMDJSON_PADDING);
  if (take_copy()) return true;
  // Text in another encoding and control characters are the usual reasons.
  const auto is_foreign = [](char c) { return static_cast<unsigned char>(c) >= 0x80; };
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < 0x20; };
  std::replace_if(copy_.begin(), copy_.end(), is_foreign, '?');
  std::replace_if(copy_.begin(), copy_.end(), is_control, ' ');
  return take_copy();
}

bool KinetoRegions::take_copy() {
  json::document document;
  json::object event;
  if (parser_.iterate(copy_.data(), copy_.size(), copy_.capacity()).get(document)) return false;
  return !document.get_object().get(event) && !events_.take(event);
}

void KinetoRegions::count_damage(std::int64_t offset) {
  ++trace_.read.events;
  ++trace_.read.damaged;
  if (trace_.read.first_damage < 0) trace_.read.first_damage = offset;
}

}  // namespace moetax
