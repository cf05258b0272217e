// combine() consumes the handle: it must be given up visibly, with std::move.
#include <utility>

#include "moetax/exchange/exchange.h"

bool finish(moetax::Exchange& exchange, moetax::Dispatched& sent, const moetax::RoutingTable& routing,
            moetax::Rows out) {
#ifdef MOETAX_MISUSE
  return exchange.combine(sent.handle, routing, {}, out).has_value();
#else
  return exchange.combine(std::move(sent.handle), routing, {}, out).has_value();
#endif
}
