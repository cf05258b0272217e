// A folder of a hundred files of all kinds, as a job leaves them behind.
#include <fmt/format.h>

#include <chrono>

#include "doctor/cases.h"

namespace moetax::doctor {
namespace {

std::string nccl_log(int rank) {
  std::string text;
  for (int channel = 0; channel < 24; ++channel) {
    text += fmt::format("node0:{0}:{0} [{1}] NCCL INFO Channel {2:02}/0 : {1}[{1}] -> {3}[{3}] via P2P/IPC\n",
                        100 + rank, rank % 8, channel, (rank + 1) % 8);
  }
  for (int i = 0; i < 2000; ++i) {
    text += fmt::format("[2024-05-01 10:{:02}:{:02}] INFO step {} loss 2.{:03} tokens per second 812\n", i / 60 % 60,
                        i % 60, i, 999 - i % 999);
  }
  return text;
}

std::string flight_dump(int rank) {
  std::string text =
      R"({"version": "2.5", "pg_config": {"0": {"name": "0", "desc": "ep", "ranks": [0,1,2,3,4,5,6,7]}}, "entries": [)";
  for (int call = 0; call < 1000; ++call) {
    text += fmt::format(
        R"({}{{"process_group": ["0", "ep"], "collective_seq_id": {}, "profiling_name": "nccl:all_to_all", "state": "{}",
 "input_sizes": [[64, 2048]], "output_sizes": [[64, 2048]], "input_dtypes": ["BFloat16"], "time_created_ns": {},
 "is_p2p": false, "frames": [{{"name": "forward", "filename": "/job/moe.py", "line": 40}}]}})",
        call > 0 ? ",\n" : "", call, call == 999 && rank != 5 ? "started" : "completed", 1000 + call);
    if (rank == 5 && call == 998) break;
  }
  return text + "]}";
}

std::string load(int layer) {
  std::string text = "layer_id,expert_id,count\n";
  for (int expert = 0; expert < 128; ++expert) text += fmt::format("{},{},{}\n", layer, expert, 900 + expert % 7);
  return text;
}

std::vector<File> hundred_files() {
  std::vector<File> files = {qwen3(),
                             {"ds.json", R"({"bf16": {"enabled": true}, "train_micro_batch_size_per_gpu": 2})"}};
  std::string script = "#!/bin/bash\n";
  for (int i = 0; i < 400; ++i) script += fmt::format("V{}=\"${{V{}:-{}}}\"\n", i, i > 0 ? i - 1 : 0, i);
  files.push_back(
      {"run.sh", script + "deepspeed --num_gpus 8 train.py --ep_size 8 --deepspeed_config ds.json --seed $V399\n"});
  for (int i = 0; i < 30; ++i) files.push_back({fmt::format("nccl_{}.log", i), nccl_log(i)});
  for (int i = 0; i < 8; ++i) files.push_back({fmt::format("dumps/rank_{}", i), flight_dump(i)});
  for (int i = 0; i < 48; ++i) files.push_back({fmt::format("load_{}.csv", i), load(i)});
  while (files.size() < 100)
    files.push_back({fmt::format("env_{}", files.size()), "NCCL_DEBUG=INFO\nOMP_NUM_THREADS=8\n"});
  return files;
}

// Generous, since sanitizers and busy machines are slower; docs/doctor.md says what it takes.
TEST(DoctorManyFiles, AFolderOfAJobTakesLittleTime) {
  const std::vector<File> files = hundred_files();
  std::vector<Input> inputs;
  for (const File& file : files) inputs.push_back({file.name, file.text, {}});
  const auto begin = std::chrono::steady_clock::now();
  const Examination examination = examine(inputs);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  RecordProperty("milliseconds", static_cast<int>(seconds * 1000));
  std::printf("%zu files, %.0f ms\n", files.size(), seconds * 1000);
  EXPECT_LT(seconds, 30);
  EXPECT_EQ(examination.checked.size(), 100U);
  const Finding* stop = find(examination, "rank-behind");
  ASSERT_TRUE(stop) << testing::PrintToString(ids(examination));
  EXPECT_THAT(words(*stop), testing::HasSubstr("rank 5 never came to all_to_all 999"));
}

}  // namespace
}  // namespace moetax::doctor
