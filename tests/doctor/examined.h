// What the doctor makes of texts written by a test.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <initializer_list>
#include <string>
#include <vector>

#include "moetax/doctor/doctor.h"

namespace moetax::doctor {

struct File {
  std::string name;
  std::string text;
};

inline Examination examined(const std::vector<File>& files) {
  std::vector<Input> inputs;
  for (const File& file : files) inputs.push_back({file.name, file.text, {}});
  return examine(inputs);
}

inline std::vector<std::string> ids(const Examination& examination) {
  std::vector<std::string> found;
  for (const Finding& finding : examination.findings) found.push_back(finding.id);
  return found;
}

inline const Finding* find(const Examination& examination, std::string_view id) {
  for (const Finding& finding : examination.findings) {
    if (finding.id == id) return &finding;
  }
  return nullptr;
}

// All that a finding says, to look for words in.
inline std::string words(const Finding& finding) {
  std::string text = finding.title + "\n" + finding.cause + "\n" + finding.cost.text + "\n" + finding.fix;
  for (const Evidence& evidence : finding.evidence) text += "\n" + evidence.text;
  return text;
}

}  // namespace moetax::doctor
