// Pickles of plain data. The opcodes are those of Python's pickletools; each only puts data on a stack.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <unordered_map>
#include <unordered_set>

#include "machine/plain_data.h"
#include "moetax/base/text.h"

namespace moetax {
namespace {

constexpr std::size_t kMaxStack = std::size_t{1} << 22;

class PickleReader {
 public:
  explicit PickleReader(std::string_view bytes) : bytes_(bytes) {}

  PlainRead read() {
    while (out_.trouble.empty() && !ended_) {
      if (at_ >= bytes_.size()) {
        trouble("ends before its end is said");
      } else if (!step(static_cast<unsigned char>(bytes_[at_++]))) {
        trouble("holds what no pickle does");
      } else if (out_.data.full() || stack_.size() > kMaxStack || memo_.size() > kMaxStack) {
        trouble("holds more values than are read");
      }
    }
    while (!marks_.empty()) fill();  // what a break leaves open
    if (!stack_.empty()) out_.values.push_back(stack_.front());
    return std::move(out_);
  }

 private:
  using Id = PlainData::Id;

  void trouble(std::string_view what) {
    if (out_.trouble.empty()) out_.trouble = fmt::format("byte {}: {}", at_, what);
  }

  // ---- bytes ----

  std::uint64_t little(std::size_t size) {
    std::uint64_t value = 0;
    if (bytes_.size() - at_ < size) {
      at_ = bytes_.size();
      trouble("ends inside of a value");
      return 0;
    }
    for (std::size_t i = 0; i < size; ++i) {
      value |= static_cast<std::uint64_t>(static_cast<unsigned char>(bytes_[at_ + i])) << (8 * i);
    }
    at_ += size;
    return value;
  }
  std::string_view some(std::uint64_t size) {
    if (size > bytes_.size() - at_) {
      trouble("ends inside of a text");
      size = bytes_.size() - at_;
    }
    const std::string_view part = bytes_.substr(at_, size);
    at_ += size;
    return part;
  }
  std::string_view line() {
    const std::size_t end = std::min(bytes_.find('\n', at_), bytes_.size());
    const std::string_view part = bytes_.substr(at_, end - at_);
    at_ = std::min(end + 1, bytes_.size());
    return part;
  }

  // ---- the stack ----

  bool push(Id id) {
    stack_.push_back(id);
    return true;
  }
  // What was put on since the last mark began stays.
  std::size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  Id pop() {
    if (stack_.size() <= floor()) {
      trouble("takes a value that is not there");
      return PlainData::kNull;
    }
    const Id id = stack_.back();
    stack_.pop_back();
    return id;
  }
  std::vector<Id> pop_mark() {
    if (marks_.empty()) {
      trouble("takes values that are not there");
      return {};
    }
    const auto begin = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
    std::vector<Id> values(begin, stack_.end());
    stack_.erase(begin, stack_.end());
    marks_.pop_back();
    return values;
  }
  Id top() { return stack_.size() > floor() ? stack_.back() : PlainData::kNull; }

  // The values since the mark, into the container below it.
  void fill() {
    const std::vector<Id> values = pop_mark();
    if (stack_.empty()) return stack_.insert(stack_.end(), values.begin(), values.end()), void();
    const Id into = stack_.back();
    if (out_.data.kind(into) == PlainKind::kMap) {
      for (std::size_t i = 0; i + 1 < values.size(); i += 2) out_.data.set(into, values[i], values[i + 1]);
    } else {
      for (const Id value : values) out_.data.append(into, value);
    }
  }
  bool collect(PlainKind kind, const std::vector<Id>& values) {
    push(out_.data.add_container(kind));
    marks_.push_back(stack_.size());
    stack_.insert(stack_.end(), values.begin(), values.end());
    fill();
    return true;
  }
  bool collect_last(std::size_t count) {
    std::vector<Id> values(count);
    for (std::size_t i = count; i-- > 0;) values[i] = pop();
    return collect(PlainKind::kList, values);
  }
  bool remember(std::uint64_t index) {
    memo_[index] = top();
    return true;
  }
  bool recall(std::uint64_t index) {
    const auto it = memo_.find(index);
    return push(it == memo_.end() ? PlainData::kNull : it->second);
  }

  // ---- values ----

  bool long_whole(std::uint64_t size) {
    const std::string_view part = some(size);
    if (part.size() > 8) return push(PlainData::kNull);  // beyond any count or time
    std::uint64_t value = !part.empty() && (part.back() & 0x80) != 0 ? ~std::uint64_t{0} : 0;
    for (std::size_t i = part.size(); i-- > 0;) value = (value << 8) | static_cast<unsigned char>(part[i]);
    return push(out_.data.add_whole(static_cast<std::int64_t>(value)));
  }
  bool big_endian_number() {
    const std::string_view part = some(8);
    std::uint64_t bits = 0;
    for (const char c : part) bits = (bits << 8) | static_cast<unsigned char>(c);
    return push(out_.data.add_number(part.size() == 8 ? std::bit_cast<double>(bits) : 0));
  }
  bool whole_line() {
    std::string_view text = line();
    if (text == "00" || text == "01") return push(out_.data.add_bool(text == "01"));
    if (text.ends_with("L")) text.remove_suffix(1);
    const auto value = parse_number<std::int64_t>(text);
    return push(value ? out_.data.add_whole(*value) : PlainData::kNull);
  }
  bool quoted_line() {
    std::string_view text = line();
    if (text.size() >= 2) text = text.substr(1, text.size() - 2);
    return push(out_.data.add_text(text));
  }

  // Something to be called: only the name of torch.jit's lists is of use.
  bool named(std::string_view name) {
    const Id id = out_.data.add_container(PlainKind::kMap);
    if (name.starts_with("build_") && name.ends_with("list")) lists_.insert(id);
    return push(id);
  }
  bool call() {
    const Id arguments = pop(), callee = pop();
    return push(lists_.count(callee) > 0 ? list_of(arguments) : PlainData::kNull);
  }
  Id list_of(Id arguments) {
    const auto it = first_.find(arguments);
    return it == first_.end() ? PlainData::kNull : it->second;
  }
  bool tuple_of_one() {
    const Id value = pop();
    const bool done = collect(PlainKind::kList, {value});
    if (!lists_.empty()) first_[stack_.back()] = value;
    return done;
  }

  bool simple(unsigned char op) {
    switch (op) {
      case 'N':
        return push(PlainData::kNull);
      case 0x88:
      case 0x89:
        return push(out_.data.add_bool(op == 0x88));
      case 'K':
        return push(out_.data.add_whole(static_cast<std::int64_t>(little(1))));
      case 'M':
        return push(out_.data.add_whole(static_cast<std::int64_t>(little(2))));
      case 'J':
        return push(out_.data.add_whole(static_cast<std::int32_t>(little(4))));
      case 0x8a:
        return long_whole(little(1));
      case 0x8b:
        return long_whole(little(4));
      case 'G':
        return big_endian_number();
      case 'I':
      case 'L':
        return whole_line();
      case 'F': {
        const auto value = parse_number<double>(line());
        return push(value ? out_.data.add_number(*value) : PlainData::kNull);
      }
      default:
        return text_value(op);
    }
  }

  bool text_value(unsigned char op) {
    switch (op) {
      case 'S':
        return quoted_line();
      case 'V':
        return push(out_.data.add_text(line()));
      case 'U':
      case 'C':
      case 0x8c:
        return push(out_.data.add_text(some(little(1))));
      case 'T':
      case 'B':
      case 'X':
        return push(out_.data.add_text(some(little(4))));
      case 0x8d:
      case 0x8e:
      case 0x96:
        return push(out_.data.add_text(some(little(8))));
      default:
        return container(op);
    }
  }

  bool container(unsigned char op) {
    switch (op) {
      case ']':
      case ')':
      case 0x8f:
        return push(out_.data.add_container(PlainKind::kList));
      case '}':
        return push(out_.data.add_container(PlainKind::kMap));
      case 'l':
      case 't':
      case 0x91:
        return collect(PlainKind::kList, pop_mark());
      case 'd':
        return collect(PlainKind::kMap, pop_mark());
      case 0x85:
        return tuple_of_one();
      case 0x86:
      case 0x87:
        return collect_last(op - 0x84U);
      case 'a': {
        const Id value = pop();
        out_.data.append(top(), value);
        return true;
      }
      case 's': {
        const Id value = pop(), key = pop();
        out_.data.set(top(), key, value);
        return true;
      }
      case 'e':
      case 'u':
      case 0x90:
        fill();
        return true;
      default:
        return memory(op);
    }
  }

  bool memory(unsigned char op) {
    switch (op) {
      case 'p':
        return remember(parse_number<std::uint64_t>(line()).value_or(0));
      case 'q':
        return remember(little(1));
      case 'r':
        return remember(little(4));
      case 0x94:
        return remember(memo_.size());
      case 'g':
        return recall(parse_number<std::uint64_t>(line()).value_or(0));
      case 'h':
        return recall(little(1));
      case 'j':
        return recall(little(4));
      case '(':
        marks_.push_back(stack_.size());
        return true;
      case '0':
        pop();
        return true;
      case '1':
        pop_mark();
        return true;
      case '2':
        return push(top());
      default:
        return object(op);
    }
  }

  // What would make objects makes nulls.
  bool object(unsigned char op) {
    switch (op) {
      case 'c': {
        line();
        return named(line());
      }
      case 0x93: {
        const Id name = pop();
        pop();
        return named(out_.data[name].text());
      }
      case 'R':
        return call();
      case 0x81:
        pop();
        pop();
        return push(PlainData::kNull);
      case 0x92:
        pop();
        pop();
        pop();
        return push(PlainData::kNull);
      case 'b':
        pop();
        return true;
      case 'i':
        line();
        line();
        pop_mark();
        return push(PlainData::kNull);
      case 'o':
        pop_mark();
        return push(PlainData::kNull);
      case 'P':
        line();
        return push(PlainData::kNull);
      case 'Q':
        pop();
        return push(PlainData::kNull);
      default:
        return false;
    }
  }

  bool step(unsigned char op) {
    switch (op) {
      case 0x80:
        little(1);
        return true;
      case 0x95:
        little(8);
        return true;
      case '.':
        ended_ = true;
        return true;
      default:
        return simple(op);
    }
  }

  std::string_view bytes_;
  std::size_t at_ = 0;
  bool ended_ = false;
  std::vector<Id> stack_;
  std::vector<std::size_t> marks_;
  std::unordered_map<std::uint64_t, Id> memo_;
  std::unordered_set<Id> lists_;      // names of torch.jit's lists
  std::unordered_map<Id, Id> first_;  // of tuples of one value, which are what such a name is called with
  PlainRead out_;
};

}  // namespace

PlainRead read_pickle(std::string_view bytes) {
  return PickleReader(bytes).read();
}

bool looks_like_pickle(std::string_view bytes) {
  if (bytes.starts_with("(dp0\n")) return true;  // protocol 0 begins with its first dictionary
  return bytes.size() > 3 && bytes[0] == '\x80' && bytes[1] >= 2 && bytes[1] <= 5;
}

}  // namespace moetax
