// A program outside the project. It calls rooms that pull in every library moetax stands on.
#include <moetax/expert/feed_forward.h>
#include <moetax/machine/host.h>
#include <moetax/model/shape.h>
#include <moetax/route/router.h>
#include <moetax/version.h>

#include <cstdio>
#include <vector>

int main() {
  const auto shape = moetax::preset("deepseek-v2-lite");
  if (!shape) return 1;
  const std::vector<float> logits(static_cast<std::size_t>(shape->router.experts), 0.5f);
  moetax::RoutingTable table;
  const auto routed = moetax::route(shape->router, {logits.data(), 1, shape->router.experts}, {}, 1, table);
  if (!routed) return 1;
  std::printf("moetax %s: token 0 goes to expert %d and %d more\n", MOETAX_VERSION_STRING, table.expert()(0, 0),
              table.topk() - 1);
  std::printf("%s, %s\n", moetax::probe_host().kernel.c_str(), moetax::gemm_description().c_str());
  return 0;
}
