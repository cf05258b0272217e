// A dispatch is combined once: its handle cannot be copied.
#include <utility>

#include "moetax/exchange/exchange.h"

moetax::DispatchHandle keep(moetax::DispatchHandle handle) {
#ifdef MOETAX_MISUSE
  moetax::DispatchHandle copy = handle;
#else
  moetax::DispatchHandle copy = std::move(handle);
#endif
  return copy;
}
