#include "doctor/shell_words.h"

#include <algorithm>
#include <array>
#include <cctype>

namespace moetax::doctor {
namespace {

bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\r';
}
bool is_name_char(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
}

// One pass over a script.
class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}

  std::vector<RawCommand> run() {
    while (at_ < text_.size()) step();
    end_command();
    return std::move(commands_);
  }

 private:
  char now() const { return text_[at_]; }
  bool next_is(char c) const { return at_ + 1 < text_.size() && text_[at_ + 1] == c; }

  void step() {
    const char c = now();
    if (c == '\\' && (next_is('\n') || next_is('\r'))) {
      at_ += next_is('\r') ? 3 : 2;
      ++line_;
      end_word();
    } else if (c == '\n') {
      end_command();
      ++line_;
      ++at_;
      skip_here_document();
    } else if (is_blank(c)) {
      end_word();
      ++at_;
    } else if (c == '#' && word_.empty()) {
      while (at_ < text_.size() && now() != '\n') ++at_;
    } else if (c == '<' || c == '>') {
      redirection();
    } else if (c == ';' || c == '|' || c == '&') {
      end_command();
      ++at_;
    } else if (c == '(' && word_.ends_with('=')) {
      take_balanced('(', ')');
    } else if ((c == '(' || c == ')') && word_.empty()) {
      end_command();
      ++at_;
    } else {
      part_of_word(c);
    }
  }

  void part_of_word(char c) {
    if (word_.empty()) word_line_ = line_;
    if (c == '\'') return take_quoted('\'');
    if (c == '"') return take_quoted('"');
    if (c == '$' && next_is('(')) {
      take();
      return take_balanced('(', ')');
    }
    if (c == '$' && next_is('{')) {
      take();
      return take_balanced('{', '}');
    }
    if (c == '\\' && at_ + 1 < text_.size()) take();
    take();
  }

  void take() {
    if (now() == '\n') ++line_;
    word_ += now();
    ++at_;
  }

  void take_quoted(char quote) {
    take();
    while (at_ < text_.size() && now() != quote) {
      if (quote == '"' && now() == '\\' && at_ + 1 < text_.size()) take();
      take();
    }
    if (at_ < text_.size()) take();
  }

  void take_balanced(char open, char close) {
    int depth = 0;
    while (at_ < text_.size()) {
      const char c = now();
      if (c == '\'' || c == '"') {
        take_quoted(c);
        continue;
      }
      if (c == '#' && open == '(' && !word_.empty() && (is_blank(word_.back()) || word_.back() == '\n')) {
        while (at_ < text_.size() && now() != '\n') ++at_;
        continue;
      }
      depth += c == open ? 1 : c == close ? -1 : 0;
      take();
      if (depth == 0) return;
    }
  }

  // "> file", "2>&1", "<<EOF": none of it is a word of the command.
  void redirection() {
    if (word_.size() == 1 && std::isdigit(static_cast<unsigned char>(word_[0]))) word_.clear();
    end_word();
    const bool here = now() == '<' && next_is('<');
    while (at_ < text_.size() && (now() == '<' || now() == '>' || now() == '&' || now() == '-')) ++at_;
    while (at_ < text_.size() && is_blank(now())) ++at_;
    std::string target;
    while (at_ < text_.size() && !is_blank(now()) && now() != '\n' && now() != ';' && now() != '|') {
      if (now() != '\'' && now() != '"') target += now();
      ++at_;
    }
    if (here) here_end_ = target;
  }

  void skip_here_document() {
    if (here_end_.empty()) return;
    const std::string wanted = std::move(here_end_);
    here_end_.clear();
    while (at_ < text_.size()) {
      const std::size_t end = std::min(text_.find('\n', at_), text_.size());
      std::string_view line = text_.substr(at_, end - at_);
      while (!line.empty() && is_blank(line.front())) line.remove_prefix(1);
      while (!line.empty() && is_blank(line.back())) line.remove_suffix(1);
      at_ = std::min(end + 1, text_.size());
      ++line_;
      if (line == wanted) return;
    }
  }

  void end_word() {
    if (!word_.empty()) command_.words.push_back({std::move(word_), word_line_});
    word_.clear();
  }

  // Keywords open and close depths and are no part of the command.
  void end_command() {
    end_word();
    constexpr std::array<std::string_view, 6> kOpen = {"if", "for", "while", "until", "case", "select"};
    constexpr std::array<std::string_view, 3> kClose = {"fi", "done", "esac"};
    constexpr std::array<std::string_view, 8> kSkip = {"then", "else", "elif", "do", "!", "{", "}", "time"};
    auto& words = command_.words;
    while (!words.empty()) {
      const std::string& first = words.front().text;
      const auto is = [&](const auto& list) { return std::find(list.begin(), list.end(), first) != list.end(); };
      if (is(kOpen)) ++depth_;
      if (is(kClose)) depth_ = std::max(0, depth_ - 1);
      if (!is(kOpen) && !is(kClose) && !is(kSkip)) break;
      words.erase(words.begin());
    }
    command_.depth = depth_;
    if (!words.empty()) commands_.push_back(std::move(command_));
    command_ = {};
  }

  std::string_view text_;
  std::size_t at_ = 0;
  int line_ = 1, word_line_ = 1, depth_ = 0;
  std::string word_, here_end_;
  RawCommand command_;
  std::vector<RawCommand> commands_;
};

// Takes one raw word apart.
class Expansion {
 public:
  Expansion(const Word& raw, const Variables& variables, bool split)
      : raw_(raw.text), line_(raw.line), variables_(variables), split_(split) {}

  std::vector<Word> run() {
    while (at_ < raw_.size()) step();
    if (!current_.empty() || quoted_) out_.push_back({std::move(current_), line_});
    return std::move(out_);
  }

 private:
  void step() {
    const char c = raw_[at_];
    if (c == '\'' && !in_double_) {
      ++at_;
      quoted_ = true;
      while (at_ < raw_.size() && raw_[at_] != '\'') current_ += raw_[at_++];
      ++at_;
    } else if (c == '"') {
      in_double_ = !in_double_;
      quoted_ = true;
      ++at_;
    } else if (c == '\\' && at_ + 1 < raw_.size()) {
      // A continuation inside quotes stays a line break: it parts words just the same and keeps lines countable.
      current_ += raw_[at_ + 1];
      at_ += 2;
    } else if (c == '$' && at_ + 1 < raw_.size()) {
      variable();
    } else if (c == '`') {
      unknown("`", raw_.find('`', at_ + 1));
    } else {
      current_ += c;
      ++at_;
    }
  }

  void unknown(std::string_view what, std::size_t end) {
    current_ += "${" + std::string(what) + "}";
    at_ = end == std::string_view::npos ? raw_.size() : end + 1;
  }

  void variable() {
    if (raw_[at_ + 1] == '(') return unknown("(", balanced_end('(', ')'));
    if (raw_[at_ + 1] == '{') {
      const std::size_t end = balanced_end('{', '}');
      const std::string_view inside = raw_.substr(at_ + 2, end == std::string_view::npos ? end : end - at_ - 2);
      at_ = end == std::string_view::npos ? raw_.size() : end + 1;
      return substitute(inside);
    }
    std::size_t end = at_ + 1;
    while (end < raw_.size() && is_name_char(raw_[end])) ++end;
    const std::string_view name = raw_.substr(at_ + 1, end - at_ - 1);
    if (name.empty()) {
      current_ += raw_[at_++];
      return;
    }
    at_ = end;
    substitute(name);
  }

  std::size_t balanced_end(char open, char close) const {
    int depth = 0;
    for (std::size_t i = at_ + 1; i < raw_.size(); ++i) {
      depth += raw_[i] == open ? 1 : raw_[i] == close ? -1 : 0;
      if (depth == 0) return i;
    }
    return std::string_view::npos;
  }

  // "NAME", "NAME[@]", "NAME:-default", "NAME-default".
  void substitute(std::string_view inside) {
    std::size_t length = 0;
    while (length < inside.size() && is_name_char(inside[length])) ++length;
    const std::string name(inside.substr(0, length));
    std::string_view rest = inside.substr(length);
    if (rest.starts_with("[@]") || rest.starts_with("[*]")) rest = {};
    const Variable* variable = variables_.find(name);
    if (variable && variable->known && (rest.empty() || rest.starts_with(":") || rest.starts_with("-"))) {
      return put(variable->words);
    }
    if (!variable && (rest.starts_with(":-") || rest.starts_with(":=") || rest.starts_with("-"))) {
      const std::string fallback(rest.substr(rest.front() == ':' ? 2 : 1));
      if (fallback.find("${") == std::string::npos) {
        current_ += Expansion({fallback, line_}, variables_, false).joined();
        return;
      }
    }
    current_ += "${" + name + "}";
  }

  void put(const std::vector<Word>& words) {
    for (std::size_t i = 0; i < words.size(); ++i) {
      if (i > 0 && split_ && !(in_double_ && words.size() == 1)) {
        if (!current_.empty()) out_.push_back({std::move(current_), line_});
        current_.clear();
      } else if (i > 0) {
        current_ += ' ';
      }
      current_ += words[i].text;
      if (split_ && words.size() > 1) line_ = words[i].line;
    }
  }

 public:
  std::string joined() {
    std::string text;
    for (const Word& word : run()) text += (text.empty() ? "" : " ") + word.text;
    return text;
  }

 private:
  std::string_view raw_;
  int line_;
  const Variables& variables_;
  bool split_;
  std::size_t at_ = 0;
  bool in_double_ = false, quoted_ = false;
  std::string current_;
  std::vector<Word> out_;
};

}  // namespace

std::vector<RawCommand> split_commands(std::string_view text) {
  return Lexer(text).run();
}

const Variable* Variables::find(const std::string& name) const {
  const auto it = by_name_.find(name);
  return it == by_name_.end() ? nullptr : &it->second;
}

void Variables::assign(const std::string& name, std::vector<Word> words, bool append, bool certain) {
  Variable& variable = by_name_[name];
  constexpr std::size_t kMaxWords = 10'000;  // X="$X $X" doubles
  if (variable.words.size() + words.size() > kMaxWords) {
    variable.known = false;
  } else if (!certain && !variable.words.empty()) {
    if (!append) variable.known = false;
  } else if (append) {
    variable.words.insert(variable.words.end(), words.begin(), words.end());
  } else {
    variable = {std::move(words), true};
  }
}

std::vector<Word> expand(const Word& raw, const Variables& variables) {
  return Expansion(raw, variables, true).run();
}

std::string expand_joined(const Word& raw, const Variables& variables) {
  return Expansion(raw, variables, false).joined();
}

}  // namespace moetax::doctor
