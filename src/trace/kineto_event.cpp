#include "trace/kineto_event.h"

#include <algorithm>
#include <cstring>

#include "moetax/base/text.h"
#include "trace/trace_time.h"

namespace moetax {
namespace {

namespace json = simdjson::ondemand;

constexpr int kOther = -1;
constexpr int kUnknown = -2;

struct CategoryKind {
  std::string_view category;
  GpuEventKind kind;
};
// Names of today, of the schema before it, and of other makers' devices.
constexpr CategoryKind kCategories[] = {
    {"kernel", GpuEventKind::kKernel},
    {"Kernel", GpuEventKind::kKernel},
    {"mtia_ccp_events", GpuEventKind::kKernel},
    {"gpu_memcpy", GpuEventKind::kCopy},
    {"Memcpy", GpuEventKind::kCopy},
    {"gpu_memset", GpuEventKind::kFill},
    {"Memset", GpuEventKind::kFill},
    {"gpu_user_annotation", GpuEventKind::kDeviceAnnotation},
    {"cuda_runtime", GpuEventKind::kRuntime},
    {"cuda_driver", GpuEventKind::kRuntime},
    {"hip_runtime", GpuEventKind::kRuntime},
    {"mtia_runtime", GpuEventKind::kRuntime},
    {"Runtime", GpuEventKind::kRuntime},
    {"cpu_op", GpuEventKind::kHostOp},
    {"Operator", GpuEventKind::kHostOp},
    {"user_annotation", GpuEventKind::kAnnotation},
};

// Whether a key as it stands in the JSON is this one. The buffer is padded, so reading beyond its quote is safe.
template <std::size_t N>
bool is_key(const char* raw, const char (&key)[N]) {
  return std::memcmp(raw, key, N - 1) == 0 && raw[N - 1] == '"';
}

std::string_view trimmed(std::string_view token) {
  while (!token.empty() && static_cast<unsigned char>(token.back()) <= ' ') token.remove_suffix(1);
  return token;
}

std::string_view without_quotes(std::string_view token) {
  return token.size() >= 2 && token.front() == '"' && token.back() == '"' ? token.substr(1, token.size() - 2) : token;
}

template <class T>
T number_or(std::string_view token, T otherwise) {
  return parse_number<T>(without_quotes(token)).value_or(otherwise);
}

bool is_note(const char* key) {
  switch (key[0]) {
    case 'C':
      return is_key(key, "Collective name");
    case 'P':
      return is_key(key, "Process Group Name") || is_key(key, "Process Group Description") ||
             is_key(key, "Process Group Ranks");
    case 'I':
      return is_key(key, "In msg nelems");
    case 'O':
      return is_key(key, "Out msg nelems");
    case 'S':
      return is_key(key, "Seq") || is_key(key, "Src Rank");
    case 'G':
      return is_key(key, "Group size");
    case 'D':
      return is_key(key, "Dst Rank");
    case 'd':
      return is_key(key, "dtype");
    default:
      return false;
  }
}

// The token of a scalar, the whole text of a list.
simdjson::error_code text_of(json::value value, std::string_view& text) {
  text = value.raw_json_token();
  if (text.starts_with('[')) {
    json::array list;
    if (const auto error = value.get_array().get(list)) return error;
    if (const auto error = list.raw_json().get(text)) return error;
  }
  text = trimmed(text);
  return simdjson::SUCCESS;
}

}  // namespace

KinetoEvents::KinetoEvents(GpuTrace& trace) : trace_(trace) {
  trace_.names.intern("");
}

simdjson::error_code KinetoEvents::take(json::object event) {
  Parts parts;
  for (auto item : event) {
    json::field field;
    if (const auto error = std::move(item).get(field)) return error;
    const char* key = field.key().raw();
    if (std::string_view* part = part_of(key, parts)) {
      *part = trimmed(field.value().raw_json_token());
    } else if (is_key(key, "args") && wants_args(parts)) {
      json::object args;
      if (field.value().get_object().get(args) != simdjson::SUCCESS) continue;  // of no use, but no harm
      if (const auto error = take_args(args, parts)) return error;
    }
  }
  return keep(parts) ? simdjson::SUCCESS : simdjson::NUMBER_ERROR;
}

std::string_view* KinetoEvents::part_of(const char* key, Parts& parts) {
  switch (key[0]) {
    case 'n':
      return is_key(key, "name") ? &parts.name : nullptr;
    case 't':
      return is_key(key, "ts") ? &parts.ts : is_key(key, "tid") ? &parts.tid : nullptr;
    case 'd':
      return is_key(key, "dur") ? &parts.dur : nullptr;
    case 'p':
      return is_key(key, "pid") ? &parts.pid : is_key(key, "ph") ? &parts.phase : nullptr;
    case 'c':
      return is_key(key, "cat") ? &parts.category : nullptr;
    default:
      return nullptr;
  }
}

// Arguments are long; most events need none. Where they come before what would tell, they are read.
bool KinetoEvents::wants_args(Parts& parts) {
  if (parts.category.empty() || parts.name.empty()) return true;
  switch (parts.kind = kind_of(parts.category)) {
    case kOther:
    case static_cast<int>(GpuEventKind::kAnnotation):
      return false;
    case static_cast<int>(GpuEventKind::kHostOp):
      return parts.name == "\"record_param_comms\"";
    default:
      return true;
  }
}

simdjson::error_code KinetoEvents::take_args(json::object args, Parts& parts) {
  for (auto item : args) {
    json::field field;
    if (const auto error = std::move(item).get(field)) return error;
    const char* key = field.key().raw();
    std::string_view* part = nullptr;
    if (key[0] == 'd') part = is_key(key, "device") ? &parts.device : nullptr;
    if (key[0] == 's') part = is_key(key, "stream") ? &parts.stream : nullptr;
    if (key[0] == 'c') part = is_key(key, "correlation") ? &parts.correlation : nullptr;
    if (part) {
      *part = trimmed(field.value().raw_json_token());
    } else if (is_note(key)) {
      std::string_view text;
      if (const auto error = text_of(field.value(), text)) return error;
      take_note(key, text, parts);
    }
  }
  return simdjson::SUCCESS;
}

void KinetoEvents::take_note(const char* key, std::string_view token, Parts& parts) {
  CollectiveNote& note = parts.note;
  parts.has_note = true;
  if (is_key(key, "Collective name"))
    note.operation = name_of(token);
  else if (is_key(key, "dtype"))
    note.dtype = name_of(token);
  else if (is_key(key, "Process Group Name"))
    note.group = name_of(token);
  else if (is_key(key, "Process Group Description"))
    note.group_what = name_of(token);
  else if (is_key(key, "Process Group Ranks"))
    note.ranks = name_of(token);
  else if (is_key(key, "In msg nelems"))
    note.in_elements = number_or<std::int64_t>(token, -1);
  else if (is_key(key, "Out msg nelems"))
    note.out_elements = number_or<std::int64_t>(token, -1);
  else if (is_key(key, "Seq"))
    note.sequence = number_or<std::int64_t>(token, -1);
  else if (is_key(key, "Group size"))
    note.group_size = number_or<int>(token, -1);
  else if (is_key(key, "Src Rank"))
    note.source = number_or<int>(token, -1);
  else if (is_key(key, "Dst Rank"))
    note.destination = number_or<int>(token, -1);
}

bool KinetoEvents::keep(const Parts& parts) {
  saw_phase_ |= !parts.phase.empty();
  ++trace_.read.events;
  int kind = kOther;
  if (parts.phase == "\"X\"") kind = parts.kind == kUnknown ? kind_of(parts.category) : parts.kind;
  if (kind == kOther) {
    ++trace_.read.ignored;
    return true;
  }
  const auto start = microseconds_as_ns(parts.ts);
  const auto duration = microseconds_as_ns(parts.dur);
  constexpr std::int64_t kMostNs = std::int64_t{1} << 62;  // sums of two stay in range
  if (!start || !duration || *duration < 0 || *duration > kMostNs || *start > kMostNs || *start < -kMostNs) {
    --trace_.read.events;
    return false;
  }
  GpuEvent event{*start, *duration, name_of(parts.name)};
  event.kind_bits = static_cast<std::uint8_t>(kind);
  event.track = track_of(parts, event.kind()) & 0xffffff;
  event.correlation = number_or<std::uint32_t>(parts.correlation, 0);
  if (parts.has_note) {
    event.collective = static_cast<std::int32_t>(trace_.collectives.size());
    trace_.collectives.push_back(parts.note);
  }
  trace_.events.push_back(event);
  return true;
}

std::uint32_t KinetoEvents::track_of(const Parts& parts, GpuEventKind kind) {
  const bool device = on_device(kind) || kind == GpuEventKind::kDeviceAnnotation;
  if (device && !parts.device.empty() && !parts.stream.empty())
    return find_track({parts.device, parts.stream, true}, parts);
  return find_track({parts.pid, parts.tid, device}, parts);
}

// The number at the end of "stream 7"; of a device it is its whole name.
// The number at the end of "stream 7"; of a device it is its whole name.
std::uint32_t KinetoEvents::find_track(const Place& place, const Parts& parts) {
  LastTrack& last = last_[place.device ? 1 : 0];
  if (last.first == place.first && last.second == place.second) return last.track;
  last.first = place.first;
  last.second = place.second;
  std::string key(1, place.device ? 'd' : 'h');
  key.append(place.first).append(1, '\n').append(place.second);
  const auto [at, is_new] = tracks_.try_emplace(std::move(key), static_cast<std::uint32_t>(trace_.tracks.size()));
  if (is_new) {
    GpuTrack track;
    track.process = without_quotes(parts.pid);
    track.thread = without_quotes(parts.tid);
    if (place.device) {
      const std::string_view stream = without_quotes(place.second);
      track.device = std::max(number_or(place.first, 0), 0);
      track.stream = number_or<std::int64_t>(stream.substr(stream.find_last_of(' ') + 1), 0);
    }
    trace_.tracks.push_back(std::move(track));
  }
  return last.track = at->second;
}

NameTable::Id KinetoEvents::name_of(std::string_view token) {
  return trace_.names.intern_json(without_quotes(token));
}

int KinetoEvents::kind_of(std::string_view category) {
  if (category.empty()) return kOther;
  KnownCategory& known =
      known_[(category.size() * 8 + static_cast<unsigned char>(category[category.size() / 2])) % known_.size()];
  if (known.text != category) {
    const std::string_view text = without_quotes(category);
    const auto* found = std::find_if(std::begin(kCategories), std::end(kCategories),
                                     [&](const CategoryKind& each) { return each.category == text; });
    known = {std::string(category), found == std::end(kCategories) ? kOther : static_cast<int>(found->kind)};
  }
  return known.kind;
}

}  // namespace moetax
