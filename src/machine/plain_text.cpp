// JSON and what Python prints, into plain data.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "machine/plain_data.h"
#include "moetax/base/text.h"

namespace moetax {
namespace {

constexpr std::size_t kMaxDepth = 64;

bool is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' || c == '+' || c == '.';
}

void append_utf8(unsigned code, std::string& out) {
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xc0 | (code >> 6));
    out += static_cast<char>(0x80 | (code & 0x3f));
  } else {
    out += static_cast<char>(0xe0 | (code >> 12));
    out += static_cast<char>(0x80 | ((code >> 6) & 0x3f));
    out += static_cast<char>(0x80 | (code & 0x3f));
  }
}

// Containers that are open stand on a stack of its own, so nesting costs no call.
class TextReader {
 public:
  explicit TextReader(std::string_view text) : text_(text) {}

  PlainRead read() {
    while (at_ < text_.size() && !out_.data.full() && out_.trouble.empty()) step();
    if (out_.data.full()) trouble(fmt::format("more than {} values", PlainData::kMostValues));
    if (out_.trouble.empty() && !open_.empty()) trouble("ends inside of a value");
    return std::move(out_);
  }

 private:
  struct Open {
    PlainData::Id id;
    char close;
    std::optional<PlainData::Id> key = {};  // of a map, while its value is awaited
    bool named = false;                     // a colon came behind the key
  };

  void trouble(std::string what) { out_.trouble = fmt::format("byte {}: {}", at_, what); }

  void step() {
    const char c = text_[at_];
    if (c == '{' || c == '[' || c == '(') return open(c);
    if (open_.empty()) {  // text around values
      ++at_;
      return;
    }
    if (c == '}' || c == ']' || c == ')') return close(c);
    if (c == '"' || c == '\'') return put(out_.data.add_text(quoted()));
    if (c == ':' && open_.back().key) open_.back().named = true;
    if (is_word(c)) return put(word());
    ++at_;
  }

  void open(char c) {
    if (open_.size() >= kMaxDepth) return trouble(fmt::format("nested deeper than {} levels", kMaxDepth));
    const PlainData::Id id = out_.data.add_container(c == '{' ? PlainKind::kMap : PlainKind::kList);
    if (open_.empty()) {
      out_.values.push_back(id);
    } else {
      put(id);
    }
    open_.push_back({id, c == '{' ? '}' : c == '[' ? ']' : ')'});
    ++at_;
  }

  // A bracket that fits none is passed over; one that fits an outer container ends those within.
  void close(char c) {
    ++at_;
    const auto fits = std::find_if(open_.rbegin(), open_.rend(), [&](const Open& open) { return open.close == c; });
    if (fits != open_.rend()) open_.erase(fits.base() - 1, open_.end());
  }

  void put(PlainData::Id value) {
    Open& open = open_.back();
    if (open.close != '}') return out_.data.append(open.id, value);
    if (open.key && open.named) {
      out_.data.set(open.id, *open.key, value);
      open.key.reset();
      open.named = false;
    } else {
      open.key = value;
    }
  }

  std::string quoted() {
    const char quote = text_[at_++];
    std::string text;
    for (; at_ < text_.size() && text_[at_] != quote; ++at_) {
      if (text_[at_] != '\\' || at_ + 1 == text_.size()) {
        text += text_[at_];
        continue;
      }
      escaped(text_[++at_], text);
    }
    at_ = std::min(at_ + 1, text_.size());
    return text;
  }

  void escaped(char c, std::string& text) {
    constexpr std::string_view kFrom = "nrtbf", kTo = "\n\r\t\b\f";
    if (const std::size_t i = kFrom.find(c); i != std::string_view::npos) {
      text += kTo[i];
    } else if (c == 'u' && at_ + 4 < text_.size()) {
      unsigned code = 0;
      const auto hex = text_.substr(at_ + 1, 4);
      const auto [end, error] = std::from_chars(hex.data(), hex.data() + 4, code, 16);
      if (error == std::errc{} && end == hex.data() + 4) append_utf8(code, text);
      at_ += 4;
    } else {
      text += c;
    }
  }

  PlainData::Id word() {
    const std::size_t begin = at_;
    while (at_ < text_.size() && is_word(text_[at_])) ++at_;
    const std::string_view word = text_.substr(begin, at_ - begin);
    if (const auto whole = parse_number<std::int64_t>(word)) return out_.data.add_whole(*whole);
    if (word == "true" || word == "True") return out_.data.add_bool(true);
    if (word == "false" || word == "False") return out_.data.add_bool(false);
    if (word == "null" || word == "None") return PlainData::kNull;
    const bool digits = std::isdigit(static_cast<unsigned char>(word.back())) || word.back() == '.';
    if (const auto number = digits ? parse_number<double>(word) : std::nullopt) return out_.data.add_number(*number);
    return out_.data.add_text(word);
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::vector<Open> open_;
  PlainRead out_;
};

}  // namespace

PlainRead read_plain_text(std::string_view text) {
  return TextReader(text).read();
}

}  // namespace moetax
