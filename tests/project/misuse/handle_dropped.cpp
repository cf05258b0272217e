// A dispatch whose result nobody looks at could never be combined.
#include "moetax/exchange/exchange.h"

bool send(moetax::Exchange& exchange, moetax::ConstRows tokens, const moetax::RoutingTable& routing) {
#ifdef MOETAX_MISUSE
  exchange.dispatch(tokens, routing);
  return true;
#else
  return exchange.dispatch(tokens, routing).has_value();
#endif
}
