// Chat templates in Jinja, as `transformers` has them: the part of the language that they use.
#pragma once
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace crest {

class JinjaTemplate {
 public:
  // Throws for a wrong text and for statements that Crest does not know. where: names it in errors.
  JinjaTemplate(std::string_view source, std::string where);
  ~JinjaTemplate();
  JinjaTemplate(JinjaTemplate&&) noexcept;

  // The text for these variables, with the whitespace rules of apply_chat_template (trim_blocks,
  // lstrip_blocks). Throws where the template raises an error, and for functions that Crest does
  // not know.
  std::string render(const nlohmann::ordered_json& variables) const;

 private:
  struct Parts;
  std::string where_;
  std::unique_ptr<Parts> parts_;
};

}  // namespace crest
