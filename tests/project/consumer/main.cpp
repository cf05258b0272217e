// A program outside the project. It touches rooms that pull in every library moetax stands on.
#include <moetax/base/memory.h>
#include <moetax/base/parallel.h>
#include <moetax/route/routing_table.h>
#include <moetax/version.h>

#include <cstdio>

int main() {
  const auto buffer = moetax::PageBuffer::reserve(1 << 20);
  if (!buffer) return 1;
  moetax::parallel_for(1 << 20, 2, 4096, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) buffer->data()[i] = std::byte{1};
  });
  const moetax::ExpertPlacement placement{64, 8};
  std::printf("moetax %s: %d experts on %d ranks, %d each\n", MOETAX_VERSION_STRING, placement.experts, placement.ranks,
              placement.count(0));
  return 0;
}
