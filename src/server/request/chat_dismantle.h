/// The end of a chat request, without allocating.
#pragma once

#include "io/json_dismantle.h"
#include "server/request/generation.h"

namespace baton {

/// Dismantles the JSON of a request (json::dismantle) at the end of its scope. The request must outlive it.
class ChatDismantling {
 public:
  explicit ChatDismantling(ChatRequest& request)
      : messages_(request.messages), tools_(request.tools.definitions), variables_(request.template_variables) {}

 private:
  const json::Dismantling messages_;
  const json::Dismantling tools_;
  const json::Dismantling variables_;
};

}  // namespace baton
