/// Taking values apart from the innermost ones on.
#include "io/json_dismantle.h"

namespace baton::json {

void dismantle(Value& value) noexcept {
  if (value.is_array()) {
    auto& list = value.get_ref<Value::array_t&>();
    for (Value& part : list) dismantle(part);
    list.clear();
  } else if (value.is_object()) {
    auto& fields = value.get_ref<Value::object_t&>();
    for (auto& [key, field] : fields) dismantle(field);
    fields.clear();
  }
}

}  // namespace baton::json
