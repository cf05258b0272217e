// Runs that cannot go on: numbers that are none any more, memory that is not there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/command.h"

namespace moetax::testing {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

std::vector<std::string> small(std::vector<std::string> more) {
  std::vector<std::string> all = {"bench",  "--hidden", "64",      "--inter",   "48",       "--experts", "16",
                                  "--topk", "4",        "--steps", "2",         "--warmup", "0",         "--ranks",
                                  "2",      "--tokens", "16",      "--threads", "1"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

// Recorded weights that overflow one layer's output leave the next one's router without numbers.
TEST(BenchLimits, LogitsThatAreNoNumbersNameTokenAndExpert) {
  std::string huge;
  for (int t = 0; t < 32; ++t) huge += "0\t1\t2\t3\t\t3e38\t3e38\t3e38\t3e38\n";
  const std::string path = write_file("huge.txt", huge);
  for (const char* dtype : {"bf16", "fp32"}) {
    const CommandResult result = run_command(small({"--layers", "2", "--routing", "tokens:" + path, "--dtype", dtype}));
    EXPECT_EQ(result.exit_code, 3) << result.err;
    EXPECT_EQ(lines_of(result.err).size(), 1u) << result.err;
    EXPECT_THAT(result.err, ContainsRegex("logit of token [0-9]+, expert [0-9]+ is -?(nan|inf)"));
  }
}

TEST(BenchLimits, RecordedWeightsMustBeNumbers) {
  const std::string path = write_file("nan.txt", "0\t1\t2\t3\t\t0.5\tnan\t0.5\t0.5\n");
  const CommandResult refused = run_command(small({"--routing", "tokens:" + path}));
  EXPECT_EQ(refused.exit_code, 3);
  EXPECT_THAT(refused.err, HasSubstr("nan.txt:1"));
  EXPECT_THAT(refused.err, HasSubstr("not a finite number"));
}

// Wherever the memory ends: a line that says so, or that names the rank that a library took down with it.
TEST(BenchLimits, AddressSpaceThatIsTooSmallIsToldInOneLine) {
  if (kSanitized) GTEST_SKIP() << "the address sanitizer needs more address space than such a limit leaves";
  int ran = 0, refused = 0;
  for (std::size_t mib = 64; mib <= 1024; mib += mib < 512 ? 32 : 256) {
    const std::vector<std::string> arguments = small({"--hidden", "1024", "--inter", "512"});
    const CommandResult result = run_command(arguments, {.address_space = mib << 20});
    if (result.exit_code == 0) {
      ++ran;
      continue;
    }
    ++refused;
    EXPECT_TRUE(result.exit_code == 4 || result.exit_code == 5) << mib << " MiB: " << result.err;
    EXPECT_EQ(lines_of(result.err).size(), 1u) << mib << " MiB: " << result.err;
    EXPECT_THAT(result.err, ContainsRegex("emory|address space")) << mib << " MiB";
    EXPECT_EQ(result.out, "");
  }
  EXPECT_GE(ran, 1);
  EXPECT_GE(refused, 3);
}

}  // namespace
}  // namespace moetax::testing
