// moetax doctor as a user runs it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/command.h"

namespace moetax::testing {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

std::string mixtral() {
  return write_file("mixtral.json", R"({"model_type": "mixtral", "hidden_size": 4096, "intermediate_size": 14336,
 "num_hidden_layers": 32, "num_local_experts": 8, "num_experts_per_tok": 2})");
}
std::string zero3() {
  return write_file("ds_config.json", "{\n \"zero_optimization\": {\n  \"stage\": 3\n }\n}\n");
}
std::string packed_model() {
  return write_file("gpt_oss.json", R"({"model_type": "gpt_oss", "hidden_size": 2880, "intermediate_size": 2880,
 "num_hidden_layers": 24, "num_local_experts": 32, "num_experts_per_tok": 4})");
}

TEST(CliDoctor, FindsAndSaysWhere) {
  const auto result = run_command({"doctor", mixtral(), zero3()});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, StartsWith("1 error, worst first.\n"));
  EXPECT_THAT(result.out, AllOf(HasSubstr("[zero3-expert-modules]"), HasSubstr("ds_config.json:3:"), HasSubstr("why "),
                                HasSubstr("costs "), HasSubstr("set_z3_leaf_modules(model,"), HasSubstr("sure ")));
  for (const std::string& line : lines_of(result.out)) EXPECT_LE(line.size(), 100U) << line;
}

TEST(CliDoctor, NothingWrongIsSaid) {
  const auto result = run_command({"doctor", packed_model(), zero3(), "--fail-on", "note"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, StartsWith("Nothing wrong found; these were checked.\n"));
}

TEST(CliDoctor, DrawsTheMachinesItIsGiven) {
  const std::string topology = write_file("topo.txt", "node 7\n  GPU0 GPU1 NIC0\nGPU0 X NV4 PIX\nGPU1 NV4 X SYS\n");
  const auto drawn = run_command({"doctor", packed_model(), topology, "--draw"});
  EXPECT_EQ(drawn.exit_code, 0);
  EXPECT_THAT(drawn.out, AllOf(HasSubstr("topo.txt:2\n2 GPUs, 1 adapter, from nvidia-smi topo -m\n"),
                               HasSubstr("+-- GPU0 --PIX-- NIC0\n"), HasSubstr("GPUs 0,1: NV4, 100 GB/s each way")));
  EXPECT_THAT(run_command({"doctor", packed_model(), topology}).out, Not(HasSubstr("GPU0 --PIX--")));
  EXPECT_THAT(run_command({"doctor", packed_model(), topology, "--draw", "--redact"}).out,
              AllOf(HasSubstr("GPU0 --PIX--"), Not(HasSubstr("topo.txt:2\n2 GPUs"))));
}

TEST(CliDoctor, FailOnRefusesALaunch) {
  EXPECT_EQ(run_command({"doctor", mixtral(), zero3(), "--fail-on", "warning"}).exit_code, 1);
  EXPECT_EQ(run_command({"doctor", mixtral(), zero3(), "--fail-on", "error"}).exit_code, 1);
  EXPECT_EQ(run_command({"doctor", mixtral(), "--fail-on", "error"}).exit_code, 0);
  EXPECT_EQ(run_command({"doctor", mixtral(), "--fail-on", "worse"}).exit_code, 2);
}

TEST(CliDoctor, IgnoreAndBaselineAcceptWhatIsKnown) {
  const std::string model = mixtral(), config = zero3();
  const auto ignored = run_command(
      {"doctor", model, config, "--ignore", "zero3-expert-modules=experts are packed", "--fail-on", "warning"});
  EXPECT_EQ(ignored.exit_code, 0);
  EXPECT_THAT(ignored.out, HasSubstr("ignored     zero3-expert-modules"));
  const std::string baseline = temporary_path("baseline.json");
  EXPECT_EQ(run_command({"doctor", model, config, "--json", baseline}).exit_code, 0);
  const auto known = run_command({"doctor", model, config, "--baseline", baseline, "--fail-on", "warning"});
  EXPECT_EQ(known.exit_code, 0);
  EXPECT_THAT(known.out, HasSubstr("ignored     zero3-expert-modules"));
  EXPECT_EQ(run_command({"doctor", model, "--ignore", "zero3-expert-modules"}).exit_code, 2);
  EXPECT_THAT(run_command({"doctor", model, "--ignore", "zero3=x"}).err, HasSubstr("nearest: zero3-expert-modules"));
  EXPECT_EQ(run_command({"doctor", model, "--baseline", model}).exit_code, 3);
}

TEST(CliDoctor, JsonHoldsTheSame) {
  const auto result = run_command({"doctor", mixtral(), zero3(), "--json", "-"});
  const json findings = json::parse(result.out);
  EXPECT_EQ(findings["schema"], "moetax.findings/1");
  ASSERT_EQ(findings["findings"].size(), 1U);
  EXPECT_EQ(findings["findings"][0]["evidence"][0]["line"], 3);
  EXPECT_EQ(findings["checked"].size(), 2U);
}

TEST(CliDoctor, StandardInput) {
  const std::string launch = write_file("launch.sh", "vllm serve some/moe --enable-expert-parallel\n");
  const std::string command = std::string(MOETAX_COMMAND) + " doctor - < " + launch;
  std::FILE* pipe = popen(command.c_str(), "r");
  std::string out(8192, '\0');
  out.resize(std::fread(out.data(), 1, out.size(), pipe));
  EXPECT_EQ(pclose(pipe), 0);
  EXPECT_THAT(out, AllOf(HasSubstr("[ep-inert]"), HasSubstr("standard input:1:")));
}

TEST(CliDoctor, FilesThatCannotBeUsedAreNamed) {
  const std::string binary = write_file("core", std::string("\x7f"
                                                            "ELF\0\0\0",
                                                            7));
  const std::string packed = write_file("log.gz", "\x1f\x8b\x08");
  const auto result = run_command({"doctor", mixtral(), binary, packed, "/no/such/file"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, AllOf(HasSubstr("binary"), HasSubstr("gzip data end too early"), HasSubstr("No such file")));
  const auto none = run_command({"doctor", binary});
  EXPECT_EQ(none.exit_code, 3);
  EXPECT_THAT(none.out, StartsWith("Nothing could be checked."));
}

TEST(CliDoctor, ExplainsItsRules) {
  const auto rule = run_command({"doctor", "--explain", "zero3-expert-modules"});
  EXPECT_EQ(rule.exit_code, 0);
  EXPECT_THAT(rule.out, AllOf(HasSubstr("leaf module"), HasSubstr("known from:")));
  const auto list = run_command({"doctor", "--explain", "list"});
  EXPECT_GT(lines_of(list.out).size(), 8U);
  const auto unknown = run_command({"doctor", "--explain", "zero3"});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("nearest: zero3-expert-modules"));
}

TEST(CliDoctor, SymptomsLeadToCauses) {
  const auto result = run_command({"doctor", "--symptom", "timeout in dispatch"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, AllOf(HasSubstr("1. "), HasSubstr("it is this one if"), HasSubstr("jit-skew-timeout"),
                                HasSubstr("what to put before the doctor")));
  EXPECT_EQ(run_command({"doctor", "--symptom", "xyzzy"}).exit_code, 2);
}

TEST(CliDoctor, LooksAtThisMachine) {
  setenv("NCCL_SECRET_OF_TEST", "1", 1);
  setenv("MY_PASSWORD", "hunter2", 1);
  const auto result = run_command({"doctor", "--here", "--json", "-"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("environment"), Not(HasSubstr("hunter2"))));
}

TEST(CliDoctor, RedactsForSharing) {
  const auto result = run_command({"doctor", mixtral(), zero3(), "--redact"});
  EXPECT_THAT(result.out, AllOf(HasSubstr("file-1"), Not(HasSubstr("ds_config.json"))));
}

TEST(CliDoctor, AskingForNothingIsUsage) {
  EXPECT_EQ(run_command({"doctor"}).exit_code, 2);
  EXPECT_EQ(run_command({"doctor", "--help"}).exit_code, 0);
}

// Of a log of 100 MB the beginning and the end are read, and that is said.
TEST(CliDoctor, LargeLogsAreReadAtBothEnds) {
  const std::string path = temporary_path("large.log");
  {
    std::ofstream file(path);
    const std::string line(1023, 'x');
    for (int i = 0; i < 100 * 1024; ++i) file << line << '\n';
    file << "[rank0] DeepGEMM warmup 2% 11/512 [01:09<57:05, 6.84s/it]\n[rank1] DeepEP error: timeout (dispatch CPU)\n";
  }
  const auto result = run_command({"doctor", path});
  std::filesystem::remove(path);
  EXPECT_THAT(result.out, AllOf(HasSubstr("[jit-skew-timeout]"), HasSubstr("bytes in its middle were not read")));
}

}  // namespace
}  // namespace moetax::testing
