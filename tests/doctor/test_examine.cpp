// The doctor as a whole: which inputs belong together, what is skipped and said, the table of rules.
#include <set>

#include "doctor/examined.h"
#include "doctor/rule.h"
#include "moetax/doctor/symptom.h"

namespace moetax::doctor {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;

const char* const kMixtral = R"({"model_type": "mixtral", "hidden_size": 4096, "intermediate_size": 14336,
 "num_hidden_layers": 32, "num_local_experts": 8, "num_experts_per_tok": 2, "num_attention_heads": 32,
 "num_key_value_heads": 8, "vocab_size": 32000})";

TEST(Doctor, NothingWrongIsAResult) {
  const auto examination = examined({{"config.json", kMixtral}});
  EXPECT_THAT(examination.findings, IsEmpty());
  ASSERT_EQ(examination.checked.size(), 1U);
  EXPECT_EQ(examination.checked[0].kind, "model configuration");
  EXPECT_THAT(examination.understood, Contains(AllOf(HasSubstr("8 experts, top-2"), HasSubstr("46.7 B"))));
}

TEST(Doctor, WhatCannotBeUsedIsSaid) {
  const auto examination = examined({{"a.bin", std::string("\0\1", 2)},
                                     {"b.json", R"({"num_experts": 4, "hidden_size": "wide"})"},
                                     {"t.json", R"({"traceEvents": []})"},
                                     {"e", ""},
                                     {"o.json", "{}"},
                                     {"l.csv", "layer_id,expert_id,count\n0,0,x\n"}});
  EXPECT_THAT(examination.checked, IsEmpty());
  ASSERT_EQ(examination.skipped.size(), 6U);
  EXPECT_EQ(examination.skipped[3].why, "is an empty file");
  EXPECT_THAT(examination.skipped[5].why, testing::StartsWith("line 2: "));
  for (const Skipped& skipped : examination.skipped) {
    EXPECT_THAT(skipped.why, Not(HasSubstr("\n")));
    EXPECT_FALSE(skipped.why.empty());
  }
}

TEST(Doctor, ABrokenConfigIsUsedAsFarAsItGoes) {
  const auto examination =
      examined({{"ds.json", "{\"zero_optimization\": {\"stage\": 3},\n \"x\": }"}, {"config.json", kMixtral}});
  EXPECT_THAT(ids(examination), Contains("zero3-expert-modules"));
  ASSERT_EQ(examination.skipped.size(), 1U);
  EXPECT_THAT(examination.skipped[0].why, HasSubstr("line 2"));
}

// A model's name is no program, and axolotl is one.
TEST(Doctor, EnginesAreToldByWhatIsStarted) {
  EXPECT_THAT(examined({{"a.sh", "swift sft --model meta-llama/Llama-4-Scout --tp 2 --ep 2\n"}}).understood,
              Not(Contains(HasSubstr("llama.cpp"))));
  EXPECT_THAT(examined({{"a.sh", "llama-server -m m.gguf --tp 2\n"}}).understood, Contains(HasSubstr("llama.cpp")));
  EXPECT_EQ(examined({{"a.sh", "axolotl train cfg.yaml\n"}}).checked.size(), 1U);
}

// Files of different jobs are not thrown together: stage 3 belongs to the job of the dense model.
TEST(Doctor, JobsAreKeptApart) {
  const auto examination =
      examined({{"a.sh", "deepspeed train.py --deepspeed_config ds3.json --model_name_or_path x/dense-7b\n"},
                {"b.sh", "torchrun train.py --ep 4 --model_name_or_path mistralai/Mixtral-8x7B-v0.1\n"},
                {"ds3.json", R"({"zero_optimization": {"stage": 3}})"}});
  EXPECT_THAT(examination.findings, IsEmpty());
}

TEST(Doctor, AConfigJoinsTheLaunchThatNamesIt) {
  const auto examination =
      examined({{"a.sh", "deepspeed train.py --deepspeed_config ds3.json --model x/Mixtral-8x7B-v0.1\n"},
                {"b.sh", "torchrun train.py --ep 4 --model x/dense\n"},
                {"ds3.json", R"({"zero_optimization": {"stage": 3}})"}});
  EXPECT_THAT(ids(examination), testing::ElementsAre("zero3-expert-modules"));
}

TEST(Doctor, IgnoringMovesAndKeepsTheReason) {
  auto examination = examined({{"ds.json", R"({"zero_optimization": {"stage": 3}})"}, {"config.json", kMixtral}});
  ignore(examination, "zero3-expert-modules", "experts are packed here");
  EXPECT_THAT(examination.findings, IsEmpty());
  ASSERT_EQ(examination.ignored.size(), 1U);
  EXPECT_EQ(examination.ignored[0].reason, "experts are packed here");
}

TEST(Doctor, RedactionHidesNamesAndKeepsNumbers) {
  auto examination = examined({{"/home/jane/ds.json", "{\"zero_optimization\": {\"stage\": 3}}"},
                               {"/home/jane/config.json", kMixtral},
                               {"/home/jane/log",
                                "gpu-7:12:99 [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5, "
                                "OpType=ALLTOALL, NumelIn=4, Timeout(ms)=600000) at 10.1.2.3 in /data/jane/x.py\n"
                                "gpu-7:12:99 [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5, "
                                "OpType=ALLTOALL, NumelIn=8, Timeout(ms)=600000)\n"}});
  ASSERT_TRUE(find(examination, "collective-mismatch"));
  redact(examination);
  for (const Finding& finding : examination.findings) {
    const std::string text = words(finding);
    for (const char* name : {"jane", "gpu-7", "10.1.2.3"}) EXPECT_THAT(text, Not(HasSubstr(name)));
    for (const Evidence& evidence : finding.evidence) EXPECT_THAT(evidence.file, HasSubstr("file-"));
  }
  EXPECT_THAT(words(*find(examination, "collective-mismatch")), HasSubstr("600000"));
}

// ---- the table of rules ---------------------------------------------------------------------------------------------

TEST(DoctorRules, EachTellsWhatItIsAbout) {
  std::set<std::string_view> seen;
  for (const Rule* rule : rules()) {
    SCOPED_TRACE(rule->id);
    EXPECT_TRUE(seen.insert(rule->id).second);
    EXPECT_GT(rule->title.size(), 15U);
    EXPECT_GT(rule->explanation.size(), 150U);
    EXPECT_GT(rule->source.size(), 5U);
  }
}

TEST(DoctorRules, ASearchNamesTheNearest) {
  EXPECT_EQ(find_rule_text("zero3-expert-modules").found.size(), 1U);
  const auto search = find_rule_text("zero3-expert-module");
  EXPECT_TRUE(search.found.empty());
  EXPECT_EQ(search.nearest.front(), "zero3-expert-modules");
}

TEST(DoctorRules, OfNothingFindNothing) {
  const Facts facts = [] {
    static const LogFacts kLog;
    Facts empty;
    empty.log = &kLog;
    return empty;
  }();
  Findings found;
  for (const Rule* rule : rules()) rule->check(facts, *rule, found);
  EXPECT_THAT(found.take(), IsEmpty());
}

// ---- symptoms -------------------------------------------------------------------------------------------------------

TEST(DoctorSymptoms, WordsLeadToCauses) {
  const std::vector<std::pair<const char*, const char*>> asked = {
      {"timeout in dispatch", "time-out in dispatch or combine"},
      {"training hangs", "training hangs after some steps"},
      {"silent deadlock at the first optimizer step", "hangs at the first optimizer step"},
      {"alltoall is slow", "the all-to-all is slow"},
      {"CUDA OOM", "out of memory"},
      {"EPLB brings no gain", "balancing experts brings nothing"},
      {"saved tensors differ in recompute", "recomputed tensors differ"},
      {"EP slower than TP", "expert parallelism is slower than without"}};
  for (const auto& [text, name] : asked) {
    const auto found = find_symptoms(text);
    ASSERT_FALSE(found.empty()) << text;
    EXPECT_EQ(found.front()->name, name) << text;
  }
  EXPECT_THAT(find_symptoms("colour of the sky"), IsEmpty());
}

TEST(DoctorSymptoms, EachTellsCausesApart) {
  for (const Symptom& symptom : symptoms()) {
    SCOPED_TRACE(symptom.name);
    EXPECT_GE(symptom.causes.size(), 2U);
    EXPECT_GE(symptom.collect.size(), 2U);
    for (const Cause& cause : symptom.causes) EXPECT_FALSE(cause.tell_apart.empty());
  }
}

}  // namespace
}  // namespace moetax::doctor
