#include "transport/segment.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>

namespace moetax {
namespace {

Unexpected refused(const char* what, std::size_t bytes) {
  return fail(ErrorCode::kUnavailable,
              fmt::format("cannot {} {} bytes of shared memory: {}", what, bytes, std::strerror(errno)));
}

bool has_several_numa_nodes() {
  std::ifstream file("/sys/devices/system/node/online");
  std::string nodes;
  return std::getline(file, nodes) && nodes.find_first_of("-,") != std::string::npos;
}

}  // namespace

Mapping::~Mapping() {
  munmap(data_, bytes_);
}

Result<std::shared_ptr<Segment>> Segment::create(std::size_t first_bytes) {
  const int file = memfd_create("moetax", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (file < 0) return refused("create", first_bytes);
  std::shared_ptr<Segment> segment(new Segment(file));
  // Sealed against shrinking: ranks that grow the file at the same time cannot cut off each other's ranges.
  if (fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK) != 0) return refused("seal", first_bytes);
  const std::size_t bytes = kFirstOffset + first_bytes;
  MOETAX_TRY(segment->grow(round_to_grain(bytes)));
  MOETAX_ASSIGN(segment->first_, segment->map(0, bytes));
  segment->taken().store(round_to_grain(bytes));
  return segment;
}

Result<std::shared_ptr<Segment>> Segment::attach(int file, std::size_t first_bytes) {
  std::shared_ptr<Segment> segment(new Segment(file));
  MOETAX_ASSIGN(segment->first_, segment->map(0, kFirstOffset + first_bytes));
  return segment;
}

Segment::~Segment() {
  close(file_);
}

Result<std::uint64_t> Segment::allocate(std::size_t bytes) {
  const std::uint64_t offset = taken().fetch_add(round_to_grain(bytes));
  MOETAX_TRY(grow(offset + round_to_grain(bytes)));
  return offset;
}

Result<void> Segment::grow(std::uint64_t bytes) {
  rlimit limit{};  // beyond it, growing would not fail but raise a deadly signal
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && bytes > limit.rlim_cur) {
    errno = EFBIG;
    return refused("reserve", bytes);
  }
  if (ftruncate(file_, static_cast<off_t>(bytes)) == 0) return {};
  // The seal refuses to shrink: another rank has grown the file beyond this range, which is as good.
  if (errno == EPERM) return {};
  return refused("reserve", bytes);
}

Result<std::shared_ptr<Mapping>> Segment::map(std::uint64_t offset, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (auto known = mapped_[offset].lock()) return known;
  // A larger reservation, of which the aligned middle is replaced by the file and the rest given back.
  const std::size_t span = bytes + kSegmentGrain;
  void* reserved = mmap(nullptr, span, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) return refused("map", bytes);
  const auto start = reinterpret_cast<std::uintptr_t>(reserved);
  const std::size_t head = round_to_grain(start) - start;
  std::byte* data = static_cast<std::byte*>(reserved) + head;
  if (mmap(data, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, file_,
           static_cast<off_t>(offset)) == MAP_FAILED) {
    const int error = std::exchange(errno, 0);
    munmap(reserved, span);
    errno = error;
    return refused("map", bytes);
  }
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t end = head + (bytes + page - 1) / page * page;
  if (head > 0) munmap(reserved, head);
  if (end < span) munmap(static_cast<std::byte*>(reserved) + end, span - end);
  // Advice: most systems give shared memory huge pages only when told to, many never do.
  madvise(data, bytes / kSegmentGrain * kSegmentGrain, MADV_HUGEPAGE);
  auto mapping = std::make_shared<Mapping>(data, bytes);
  mapped_[offset] = mapping;
  return mapping;
}

void Segment::drop_pages(std::uint64_t offset, std::size_t bytes) {
  // If the system will not, the pages live as long as the job.
  static_cast<void>(fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                              static_cast<off_t>(round_to_grain(bytes))));
}

void prefer_own_numa_node(std::byte* data, std::size_t bytes) {
  static const bool several = has_several_numa_nodes();
  unsigned cpu = 0;
  unsigned node = 0;
  if (!several || bytes == 0 || getcpu(&cpu, &node) != 0) return;
  constexpr std::size_t kBits = sizeof(unsigned long) * CHAR_BIT;
  std::array<unsigned long, 1024 / kBits> nodes{};
  if (node / kBits >= nodes.size()) return;
  nodes[node / kBits] = 1UL << (node % kBits);
  // Advice: where the policy is refused, pages fall to the rank that touches them first.
  syscall(SYS_mbind, data, bytes, MPOL_PREFERRED, nodes.data(), nodes.size() * kBits, 0);
}

}  // namespace moetax
