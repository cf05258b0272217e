// Shell text -> commands of words, and words -> what they stand for, as far as a script's own variables tell.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "doctor/readers.h"

namespace moetax::doctor {

// A command as written: quotes and variables still in its words.
struct RawCommand {
  std::vector<Word> words;
  int depth = 0;  // of if, for, while, case around it
};

// Cuts at newlines, ';', '&', '|' and brackets; drops comments, redirections and here-documents. The value of
// NAME=( ... ) is one word. Never fails: what ends too early ends with the text.
std::vector<RawCommand> split_commands(std::string_view text);

struct Variable {
  std::vector<Word> words;
  bool known = true;
};

class Variables {
 public:
  const Variable* find(const std::string& name) const;
  // Inside an `if`, a name that already has another value becomes unknown.
  void assign(const std::string& name, std::vector<Word> words, bool append, bool certain);
  const std::map<std::string, Variable>& all() const { return by_name_; }

 private:
  std::map<std::string, Variable> by_name_;
};

// The words that a raw word stands for; "${NAME}" for variables that are not known.
std::vector<Word> expand(const Word& raw, const Variables& variables);
// The same without splitting: one text.
std::string expand_joined(const Word& raw, const Variables& variables);

}  // namespace moetax::doctor
