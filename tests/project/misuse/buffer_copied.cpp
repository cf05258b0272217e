// Large memory has one owner.
#include <utility>

#include "moetax/base/memory.h"

std::size_t give(moetax::PageBuffer buffer) {
#ifdef MOETAX_MISUSE
  moetax::PageBuffer other = buffer;
#else
  moetax::PageBuffer other = std::move(buffer);
#endif
  return other.size();
}
