// Settings out of shell scripts, JSON, YAML and TOML.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "doctor/readers.h"
#include "doctor/recognise.h"

namespace moetax::doctor {
namespace {

using testing::HasSubstr;

Settings launched(std::string_view text) {
  const Script script = read_script(text, "run.sh");
  EXPECT_EQ(script.launches.size(), 1U) << text;
  return script.launches.empty() ? Settings() : script.launches[0].settings;
}

TEST(DoctorShell, FlagsInAllSpellings) {
  const Settings s =
      launched("torchrun --nproc_per_node=8 --nnodes 2 train.py --moe -tp 4 --lr -0.5 a.b=3 --no-compile\n");
  EXPECT_EQ(s.whole({"nproc_per_node"}), 8);
  EXPECT_EQ(s.whole({"nnodes"}), 2);
  EXPECT_TRUE(s.on({"moe"}));
  EXPECT_EQ(s.whole({"tp"}), 4);
  EXPECT_EQ(s.number({"lr"}), -0.5);
  EXPECT_EQ(s.whole({"b"}), 3);
  EXPECT_TRUE(s.off({"compile"}));
  EXPECT_EQ(s.flag({"not_there"}), std::nullopt);
}

TEST(DoctorShell, LinesOfContinuedCommands) {
  const Settings s =
      launched("#!/bin/bash\nTP=4\nvllm serve some/model \\\n  --port 80 \\\n  --tensor-parallel-size $TP\n");
  const Setting* tp = s.find({"tensor_parallel_size"});
  ASSERT_TRUE(tp);
  EXPECT_EQ(tp->value, "4");
  EXPECT_EQ(tp->at.line, 5);
  EXPECT_EQ(tp->at.text, "--tensor-parallel-size $TP");
  EXPECT_EQ(s.word({"model"}), "some/model");
}

TEST(DoctorShell, VariablesArraysAndDefaults) {
  const Settings s = launched(R"(
ARGS=(
  --micro-batch-size 1   # a comment
  --seq-length "${SEQ:-4096}"
)
MORE="--expert-model-parallel-size 8
  --num-experts 64"
ARGS+=(--bf16)
torchrun --nproc_per_node ${GPUS:-8} pretrain.py ${ARGS[@]} $MORE --seed $SEED > log.txt 2>&1 | tee x
)");
  EXPECT_EQ(s.whole({"micro_batch_size"}), 1);
  EXPECT_EQ(s.whole({"seq_length"}), 4096);
  EXPECT_EQ(s.whole({"expert_model_parallel_size"}), 8);
  EXPECT_EQ(s.find({"num_experts"})->at.line, 7);
  EXPECT_TRUE(s.on({"bf16"}));
  EXPECT_EQ(s.whole({"nproc_per_node"}), 8);
  EXPECT_EQ(s.whole({"seed"}), std::nullopt);  // nobody says
}

TEST(DoctorShell, WhatAnIfChangesIsUnknown) {
  const Settings s = launched("TP=2\nif [ \"$BIG\" = 1 ]; then\n  TP=8\nfi\ntorchrun train.py --tp $TP --ep 4\n");
  EXPECT_EQ(s.whole({"tp"}), std::nullopt);
  EXPECT_EQ(s.whole({"ep"}), 4);
}

TEST(DoctorShell, EnvironmentOfTheCommand) {
  const Script script = read_script(
      "#SBATCH --nodes=4\nexport NCCL_IB_DISABLE=1\nA=2\nEP=64 TP=2 bash run_all.sh --x\nmpirun -x NCCL_DEBUG=INFO -np "
      "16 "
      "python train.py --ep-size 8\n",
      "job.sh");
  ASSERT_EQ(script.launches.size(), 2U);
  EXPECT_EQ(script.launches[0].settings.whole({"EP"}), 64);
  EXPECT_EQ(script.launches[0].settings.whole({"nodes"}), 4);
  EXPECT_TRUE(script.launches[0].settings.on({"NCCL_IB_DISABLE"}));
  EXPECT_EQ(script.launches[1].settings.word({"NCCL_DEBUG"}), "info");
  EXPECT_EQ(script.launches[1].settings.whole({"np"}), 16);
  EXPECT_EQ(script.launches[1].settings.whole({"EP"}), std::nullopt);
  EXPECT_EQ(script.variables.whole({"A"}), 2);
}

TEST(DoctorShell, ClientsAndEchoesStartNothing) {
  EXPECT_TRUE(
      read_script("echo \"vllm serve m --tp 4\"\npython -m sglang.bench_serving --tp 4\n", "x").launches.empty());
  EXPECT_TRUE(read_script("cat <<EOF\nvllm serve m\nEOF\n", "x").launches.empty());
}

TEST(DoctorShell, JsonInAFlag) {
  const Settings s =
      launched(R"(vllm serve m --compilation-config '{"cudagraph_mode": "FULL", "cudagraph_capture_sizes": [1, 2]}')");
  EXPECT_EQ(s.word({"cudagraph_mode"}), "full");
  EXPECT_EQ(s.word({"cudagraph_capture_sizes"}), "1 2");
}

TEST(DoctorShell, TextThatEndsTooEarly) {
  for (const char* text :
       {"torchrun --a \"b", "torchrun ${A", "torchrun $(x", "A=(", "A=( x", "torchrun 'x", "a `b", "$"}) {
    (void)read_script(text, "x");
  }
  std::string doubling = "A=\"x x\"\n";
  for (int i = 0; i < 64; ++i) doubling += "A=\"$A $A\"\n";
  (void)read_script(doubling + "torchrun $A\n", "x");
}

TEST(DoctorConfigs, JsonWithLinesAndComments) {
  const SettingsFile file = read_json_settings(
      "{ // comment\n \"zero_optimization\": {\n  \"stage\": 3,\n  \"offload_param\": {\"device\": \"cpu\"}\n },\n"
      " \"sizes\": [1, 2]\n}",
      "ds.json");
  EXPECT_EQ(file.trouble, "");
  EXPECT_EQ(file.settings.find({"zero_optimization.stage"})->at.line, 3);
  EXPECT_EQ(file.settings.word({"offload_param.device"}), "cpu");
  EXPECT_EQ(file.settings.word({"sizes"}), "1 2");
  EXPECT_EQ(file.settings.whole({"device.stage"}), std::nullopt);
}

TEST(DoctorConfigs, JsonThatBreaksOffGivesWhatWasThere) {
  const SettingsFile file = read_json_settings("{\n \"a\": 1,\n \"b\": tru", "ds.json");
  EXPECT_EQ(file.settings.whole({"a"}), 1);
  EXPECT_THAT(file.trouble, HasSubstr("line 3"));
  EXPECT_THAT(read_json_settings(std::string(100'000, '['), "deep.json").trouble, HasSubstr("64 levels"));
}

TEST(DoctorConfigs, YamlWithFlagsVariablesAndLists) {
  const SettingsFile file = read_yaml_settings(
      "ENV_VARS:\n  NCCL_DEBUG: INFO\n  TP: 2\nMODEL_ARGS:\n  --tensor-model-parallel-size: ${TP}\n  --moe-x: true\n"
      "list:\n- 1\n- 2\nmaps:\n- {a: 5}\n",
      "m.yaml");
  EXPECT_EQ(file.settings.whole({"tensor_model_parallel_size"}), 2);
  EXPECT_EQ(file.settings.find({"tensor_model_parallel_size"})->at.line, 5);
  EXPECT_EQ(file.settings.word({"NCCL_DEBUG"}), "info");
  EXPECT_TRUE(file.settings.on({"moe_x"}));
  EXPECT_EQ(file.settings.word({"list"}), "1 2");
  EXPECT_EQ(file.settings.whole({"maps.a"}), 5);
}

TEST(DoctorConfigs, YamlThatIsNoneOrMultiplies) {
  EXPECT_THAT(read_yaml_settings("a: [1, 2\nb: }", "x").trouble, HasSubstr("not YAML"));
  std::string bomb = "a0: &a0 {x: 1, y: 2}\n";
  for (int i = 1; i < 30; ++i) {
    const std::string below = fmt::format("*a{}", i - 1), name = fmt::format("a{}", i);
    bomb.append(name).append(": &").append(name).append(" {x: ").append(below).append(", y: ").append(below).append(
        "}\n");
  }
  EXPECT_THAT(read_yaml_settings(bomb, "x").trouble, HasSubstr("more than"));
}

TEST(DoctorConfigs, Toml) {
  const SettingsFile file =
      read_toml_settings("[parallelism]\nexpert_parallel_degree = 8\n[compile]\nenable = false\n", "t");
  EXPECT_EQ(file.settings.find({"parallelism.expert_parallel_degree"})->at.line, 2);
  EXPECT_TRUE(file.settings.off({"compile.enable"}));
  EXPECT_THAT(read_toml_settings("[a\n", "t").trouble, HasSubstr("line 1"));
  // U+FEFE, at which the library's tables end.
  EXPECT_NE(read_toml_settings("\xef\xbb\xbe"
                               "a = 1\n",
                               "t")
                .trouble,
            "");
  EXPECT_EQ(read_toml_settings("a = 1  # \xc3\xa9\nb = \"\xc3\xa9\"\n", "t").settings.whole({"a"}), 1);
}

TEST(DoctorRecognise, ByContent) {
  const std::vector<std::pair<InputKind, const char*>> samples = {
      {InputKind::kModelConfig, R"({"num_experts": 8, "hidden_size": 4})"},
      {InputKind::kDeepSpeed, R"({"zero_optimization": {"stage": 3}})"},
      {InputKind::kScript, "#!/bin/bash\nls\n"},
      {InputKind::kScript, "torchrun --nproc_per_node 8 train.py"},
      {InputKind::kJobYaml, "distributed_type: DEEPSPEED\nnum_processes: 4\n"},
      {InputKind::kJobToml, "[parallelism]\nexpert_parallel_degree = 8\n"},
      {InputKind::kEnvironment, "NCCL_DEBUG=INFO\nNCCL_IB_DISABLE=1\n"},
      {InputKind::kLoad, "layer_id,expert_id,count\n0,0,1\n"},
      {InputKind::kLoad, "layer_id,expert_ids\n3,52 40\n"},
      {InputKind::kLoad, "8\t26\t56\t\t0.5\t0.25\t0.25\n"},
      {InputKind::kTrace, "[\n{\"name\": \"x\", \"ph\": \"b\", \"ts\": 3.5},\n"},
      {InputKind::kFlightDump, "{\"entries\": [], \"pg_config\": {}}"},
      {InputKind::kInspector, "{\"coll_perf\": {}}"},
      {InputKind::kKernels, "Time,Total Time,Name\n1%,3 s,x\n"},
      {InputKind::kLoad, "0,0,1\n0,1,5\n"},
      {InputKind::kTopology, "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV12\t0-3\nGPU1\tNV12\t X \t0-3\n"},
      {InputKind::kNcclLog, "host:1:2 [0] NCCL INFO Bootstrap : Using eth0"},
      {InputKind::kBill, R"({"schema": "moetax.bill/1"})"},
      {InputKind::kTrace, R"({"traceEvents": []})"},
      {InputKind::kLog, "[rank3]: RuntimeError: CUDA out of memory"},
  };
  for (const auto& [kind, text] : samples) EXPECT_STREQ(to_string(recognise(text).kind), to_string(kind)) << text;
}

TEST(DoctorRecognise, UnknownNamesTheNearest) {
  EXPECT_THAT(recognise("name,age\nbob,3\n").nearest.front(), HasSubstr("expert load"));
  EXPECT_THAT(recognise("<html></html>").nearest.front(), HasSubstr("topology as XML"));
  EXPECT_THAT(recognise("PK\x03\x04").nearest.front(), HasSubstr("zip"));
  EXPECT_THAT(recognise("").nearest.front(), HasSubstr("empty"));
  EXPECT_THAT(recognise(std::string_view("\x7f"
                                         "ELF\0\0",
                                         6))
                  .nearest.front(),
              HasSubstr("binary"));
  EXPECT_THAT(recognise(R"({"architectures": ["Llama"]})").nearest.front(), HasSubstr("model configuration"));
  EXPECT_FALSE(recognise("lorem ipsum dolor\nsit amet\n").nearest.empty());
}

}  // namespace
}  // namespace moetax::doctor
