#include <gtest/gtest.h>

#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>

#include "machine/cgroup.h"

namespace moetax {
namespace {

namespace fs = std::filesystem;

// A made-up /proc and /sys.
class Cgroups : public testing::Test {
 protected:
  void SetUp() override {
    root_ = testing::TempDir() + "/moetax_cgroup_" + std::to_string(getpid());
    fs::remove_all(root_);
  }
  void TearDown() override { fs::remove_all(root_); }
  void write(const std::string& path, const std::string& text) const {
    fs::create_directories(fs::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  CgroupLimits read() const { return read_cgroup_limits(root_); }

  std::string root_;
  static constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();
};

constexpr const char* kMount2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";

TEST_F(Cgroups, NoneMeansNoLimit) {
  EXPECT_TRUE(std::isinf(read().cpus));
  EXPECT_EQ(read().memory_bytes, kNone);
  EXPECT_EQ(read().available_bytes, kNone);
}

TEST_F(Cgroups, Version2TakesTheTightestLevel) {
  write("/proc/self/cgroup", "0::/system.slice/job.scope\n");
  write("/proc/self/mountinfo", std::string("23 1 8:1 / / rw - ext4 /dev/sda1 rw\n") + kMount2);
  write("/sys/fs/cgroup/system.slice/job.scope/cpu.max", "max 100000\n");
  write("/sys/fs/cgroup/system.slice/cpu.max", "250000 100000\n");
  write("/sys/fs/cgroup/system.slice/job.scope/memory.max", "1000000\n");
  write("/sys/fs/cgroup/system.slice/job.scope/memory.current", "700000\n");
  write("/sys/fs/cgroup/system.slice/job.scope/memory.stat", "anon 500000\ninactive_file 100000\nfile 200000\n");
  write("/sys/fs/cgroup/system.slice/memory.max", "5000000\n");
  write("/sys/fs/cgroup/system.slice/memory.current", "4900000\n");
  EXPECT_DOUBLE_EQ(read().cpus, 2.5);
  EXPECT_EQ(read().memory_bytes, 1'000'000u);
  EXPECT_EQ(read().available_bytes, 100'000u);  // the slice has less left than the job's own 400000
}

TEST_F(Cgroups, InsideAContainerThePathMayNotExist) {
  write("/proc/self/cgroup", "0::/docker/0123abcd\n");
  write("/proc/self/mountinfo", "30 23 0:26 /docker/0123abcd /sys/fs/cgroup ro - cgroup2 cgroup rw\n");
  write("/sys/fs/cgroup/cpu.max", "50000 100000\n");
  write("/sys/fs/cgroup/memory.max", "1000\n");
  write("/sys/fs/cgroup/memory.current", "3000\n");
  EXPECT_DOUBLE_EQ(read().cpus, 0.5);
  EXPECT_EQ(read().available_bytes, 0u);
  write("/proc/self/cgroup", "0::/elsewhere\n");
  EXPECT_DOUBLE_EQ(read().cpus, 0.5);
}

TEST_F(Cgroups, Version1HasAHierarchyForEachController) {
  write("/proc/self/cgroup", "9:name=systemd:/\n4:memory:/job\n2:cpuacct,cpu:/job\n0::/\n");
  write("/proc/self/mountinfo",
        std::string("32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n") +
            "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n");
  write("/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "300000\n");
  write("/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n");
  write("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
  write("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  write("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "8000\n");
  write("/sys/fs/cgroup/memory/job/memory.usage_in_bytes", "5000\n");
  write("/sys/fs/cgroup/memory/job/memory.stat", "inactive_file 1\ntotal_inactive_file 1000\n");
  write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_DOUBLE_EQ(read().cpus, 3);
  EXPECT_EQ(read().memory_bytes, 8000u);
  EXPECT_EQ(read().available_bytes, 4000u);
}

TEST_F(Cgroups, UnreadableNumbersLimitNothing) {
  write("/proc/self/cgroup", "nonsense\n:\n0::\n");
  write("/proc/self/mountinfo", std::string("short\n - cgroup2\n") + kMount2);
  write("/sys/fs/cgroup/cpu.max", "many few\n");
  write("/sys/fs/cgroup/memory.max", "-5\n");
  EXPECT_TRUE(std::isinf(read().cpus));
  EXPECT_EQ(read().memory_bytes, kNone);
}

}  // namespace
}  // namespace moetax
