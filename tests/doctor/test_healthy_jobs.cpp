// Jobs as they are published for others to start from: no warning may result.
#include <filesystem>
#include <fstream>
#include <iterator>

#include "doctor/examined.h"

namespace moetax::doctor {
namespace {

namespace fs = std::filesystem;

std::vector<File> files_of(const fs::path& folder) {
  std::vector<File> files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    std::ifstream file(entry.path());
    files.push_back({entry.path().filename().string(), {std::istreambuf_iterator<char>(file), {}}});
  }
  return files;
}

TEST(DoctorHealthyJobs, NoneIsWarnedAbout) {
  int jobs = 0;
  for (const auto& entry : fs::directory_iterator(std::string(MOETAX_SOURCE_DIR) + "/tests/doctor/healthy")) {
    if (!entry.is_directory()) continue;
    SCOPED_TRACE(entry.path().filename().string());
    ++jobs;
    const Examination examination = examined(files_of(entry.path()));
    for (const Skipped& skipped : examination.skipped) ADD_FAILURE() << skipped.file << ": " << skipped.why;
    EXPECT_FALSE(examination.checked.empty());
    for (const Finding& finding : examination.findings) {
      EXPECT_EQ(finding.severity, Severity::kNote) << finding.id << ": " << words(finding);
    }
  }
  EXPECT_GE(jobs, 20);
}

}  // namespace
}  // namespace moetax::doctor
