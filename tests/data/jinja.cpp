// Chat templates in Jinja: the language, its errors, and bounds on what a template may cost.
#include "data/jinja.h"

#include <nlohmann/json.hpp>

#include "data/chat.h"
#include "data/helpers.h"
#include "data/tokenizer.h"
#include "host/external.h"

using namespace crest;
using namespace crest::test;

namespace {

using Json = nlohmann::ordered_json;

const Json variables = Json::parse(R"({
  "messages": [{"role": "system", "content": " Be brief. "}, {"role": "user", "content": "Hi\n"},
               {"role": "assistant", "content": "<think>no</think>\n\nHello"}, {"role": "user", "content": "Bye ü"}],
  "add_generation_prompt": true, "bos_token": "<s>", "eos_token": "</s>", "none": null, "empty": "",
  "numbers": [3, 1, 2], "pair": {"b": 1, "a": [true, null, 1.5, "x\"é"]}
})");

std::string render(const std::string& text) { return JinjaTemplate(text, "template").render(variables); }

struct Case {
  const char *text, *expected;
};

// The expected texts are those of jinja2: see JinjaIsThatOfPython.
const Case cases[] = {
    {"a{{ bos_token }}b", "a<s>b"},
    {"{{ missing }}|{{ none }}|{{ true }}|{{ 1.0 }}|{{ 2 }}", "|None|True|1.0|2"},
    {"{{ pair }}{{ numbers }}", "{'b': 1, 'a': [True, None, 1.5, 'x\"é']}[3, 1, 2]"},
    {"{{ pair | tojson }}", "{\"b\": 1, \"a\": [true, null, 1.5, \"x\\\"é\"]}"},
    {"{{ numbers | tojson(indent=none, ensure_ascii=false) }}", "[3, 1, 2]"},
    {"{{ pair | tojson(indent=2) }}",
     "{\n  \"b\": 1,\n  \"a\": [\n    true,\n    null,\n    1.5,\n    \"x\\\"é\"\n  ]\n}"},
    // White space.
    {"a\n  {% if true %}\nb\n  {% endif %}\nc\n", "a\nb\nc"},
    {"a \n {%- if true -%} \n b \n {%- endif -%} \n c", "abc"},
    {"  {# one #}\n  {{- 'x' }}\n\n{{ 'y' -}}\n z", "x\n\nyz"},
    {"a {# c #} b\n\n", "a  b\n"},
    {"{% raw %} {{ x }} {% endraw %}|{% raw -%} {{ y }} {%- endraw %}", " {{ x }} |{{ y }}"},
    {"{{ '}}' }}{{ {'a': {'b': 1}}['a'].b }}{{ \"%}\" }}", "}}1%}"},
    {"{{ 'a' 'b' ~ 'c\\n\\'\\\\' }}{{ '\\u00e9\\x41' }}", "abc\n'\\éA"},
    // Operators.
    {"{{ 1 + 2 * 3 - 4 // 3 }} {{ 7 % 3 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** 3 }}", "6 1 -4 2 3.5 8"},
    {"{{ 'a' ~ 1 ~ none }} {{ 'ab' * 2 }} {{ [1] + [2] }}", "a1None abab [1, 2]"},
    {"{{ 1 < 2 and 'b' > 'a' }} {{ not 1 == 1 }} {{ 1 == 1.0 }} {{ 'a' != 'b' }}", "True False True True"},
    {"{{ 'b' in 'abc' }} {{ 2 in numbers }} {{ 'c' not in pair }} {{ 'x' in missing }}", "True True True False"},
    {"{{ empty or 'x' }} {{ 'a' and none }} {{ (1, 2)[1] }}", "x None 2"},
    {"{{ 'y' if numbers else 'n' }}{{ 'y' if empty }}{{ 1 if false else 2 if false else 3 }}", "y3"},
    {"{{ numbers[-1] }}{{ numbers[1:] }}{{ numbers[::-1] }}{{ numbers[:1] }}{{ messages[3].content[-1] }}",
     "2[1, 2][2, 1, 3][3]ü"},
    {"{{ messages[0]['role'] }}{{ messages[0].missing }}{{ messages[9] }}{{ 'aéb'[1:] }}", "systeméb"},
    // Tests.
    {"{{ x is defined }} {{ none is none }} {{ empty is not none }} {{ 'a' is string }} {{ pair is mapping }}",
     "False True True True True"},
    {"{{ 1 is odd }} {{ 4 is divisibleby 2 }} {{ 1 is in [1] }} {{ 'a' is eq('a') }} {{ true is boolean }}",
     "True True True True True"},
    {"{{ numbers is iterable and numbers is not string }} {{ 1 is number }} {{ true is true }}", "True True True"},
    // Filters and methods.
    {"{{ messages[0].content | trim }}|{{ ' a ' | trim | upper }}|{{ 'a b' | title }}|{{ 'aB' | capitalize }}",
     "Be brief.|A|A B|Ab"},
    {"{{ missing | default('d') }}{{ empty | default('e', true) }}{{ none | d('n') }}", "deNone"},
    {"{{ numbers | length }}{{ 'äb' | length }}{{ missing | length }}{{ pair | count }}", "3202"},
    {"{{ numbers | join(', ') }} {{ messages | map(attribute='role') | join('-') }} {{ numbers | first }}",
     "3, 1, 2 system-user-assistant-user 3"},
    {"{{ messages | selectattr('role', 'equalto', 'user') | list | length }}"
     "{{ messages | rejectattr('role', 'in', ['user']) | map(attribute='role') | list }}"
     "{{ [0, 1, 2] | select | list }}{{ [1, 2] | reject('odd') | list }}{{ numbers | last }}",
     "2['system', 'assistant'][1, 2][2]2"},
    {"{{ 'a-b' | replace('-', '+') }}{{ '7' | int + 1 }}{{ 'ab' | reverse }}{{ [1, 1, 2] | unique | list }}",
     "a+b8ba[1, 2]"},
    {"{{ messages[2].content.split('</think>')[-1].lstrip('\\n') }}|{{ ' a b '.split() }}|{{ 'a,b,c'.split(',', 1) }}",
     "Hello|['a', 'b']|['a', 'b,c']"},
    {"{{ ' x '.strip() }}{{ 'xyx'.strip('x') }}{{ 'ab'.startswith('a') }}{{ 'ab'.endswith(('c', 'b')) }}"
     "{{ 'ab'.upper() }}{{ 'a.b'.replace('.', '') }}{{ ' a '.rstrip() }}{{ 'abc'.find('c') }}",
     "xyTrueTrueABab a2"},
    {"{% for k, v in pair.items() %}{{ k }}={{ v }};{% endfor %}{{ pair.get('a') }}{{ pair.get('z', 5) }}"
     "{{ pair.keys() | list }}",
     "b=1;a=[True, None, 1.5, 'x\"é'];[True, None, 1.5, 'x\"é']5['b', 'a']"},
    {"{{ 'a\nb' | indent(2) }}|{{ '%s' | string }}|{{ (pair | items | list)[0][0] }}", "a\n  b|%s|b"},
    // Statements.
    {"{% for m in messages %}{{ loop.index0 }}{{ m.role[0] }}{% if not loop.last %},{% endif %}{% endfor %}",
     "0s,1u,2a,3u"},
    {"{% for n in numbers if n > 1 %}{{ loop.index }}:{{ n }}/{{ loop.length }} {% else %}none{% endfor %}",
     "1:3/2 2:2/2 "},
    {"{% for n in [] %}{{ n }}{% else %}none{% endfor %}{% for n in range(5) %}{% if n == 1 %}{% continue %}{% endif %}"
     "{% if n == 3 %}{% break %}{% endif %}{{ n }}{% endfor %}",
     "none02"},
    {"{% set x = 1 %}{% for n in numbers %}{% set x = n %}{% endfor %}{{ x }}", "1"},
    {"{% set ns = namespace(x=1, y='a') %}{% for n in numbers %}{% set ns.x = ns.x + n %}{% endfor %}{{ ns.x }}{{ ns.y "
     "}}",
     "7a"},
    {"{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set t %}<{{ a }}>{% endset %}{{ t | length }}{{ t }}", "123<1>"},
    {"{% if empty %}a{% elif numbers | length > 2 %}b{% else %}c{% endif %}", "b"},
    {"{% macro f(x, y='d') %}({{ x }}{{ y }}){% endmacro %}{{ f(1) }}{{ f(1, y=2) }}{{ f() }}", "(1d)(12)(d)"},
    {"{% set x = 'o' %}{% macro f(n) %}{{ x }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(2) }}", "ooo"},
    {"{% for n in numbers %}{{ loop.previtem }}<{{ n }}>{{ loop.nextitem }}{{ loop.cycle('a', 'b') }}{% endfor %}",
     "<3>1a3<1>2b1<2>a"},
    {"{% generation %}{{ 1 }}{% endgeneration %}", "1"},
};

// "": none.
std::string refusal(const std::string& text) {
  try {
    render(text);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

}  // namespace

TEST(Jinja, RendersTheLanguageOfTemplates) {
  for (auto& c : cases) {
    SCOPED_TRACE(c.text);
    EXPECT_EQ(render(c.text), c.expected);
  }
}

TEST(Jinja, IsThatOfPython) {
  const char* named = std::getenv("CREST_PYTHON");
  std::string python = named ? named : "python3";
  if (run_program("/usr/bin/env", {"env", python, "-c", "import jinja2"}).exit_code != 0)
    GTEST_SKIP() << "needs jinja2: python3 -m venv V && V/bin/pip install jinja2, CREST_PYTHON=V/bin/python3";
  DataFolder dir;
  // The environment of apply_chat_template.
  write_file(dir / "render.py", R"(
import json, sys
import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment
class Generation(Extension):
    tags = {"generation"}
    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)
    def _body(self, caller):
        return caller()
environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, Generation])
environment.filters["tojson"] = lambda x, ensure_ascii=False, indent=None: json.dumps(x, ensure_ascii=ensure_ascii, indent=indent)
cases = json.load(open(sys.argv[1]))
print(json.dumps([environment.from_string(c).render(**json.load(open(sys.argv[2]))) for c in cases]))
)");
  Json texts = Json::array();
  for (auto& c : cases) texts.push_back(c.text);
  write_file(dir / "cases.json", texts.dump());
  write_file(dir / "variables.json", variables.dump());
  CommandOutput r =
      run_program("/usr/bin/env", {"env", python, dir / "render.py", dir / "cases.json", dir / "variables.json"});
  ASSERT_EQ(r.exit_code, 0) << r.err;
  const auto rendered = Json::parse(r.out);
  for (size_t i = 0; i < std::size(cases); ++i) EXPECT_EQ(rendered[i], cases[i].expected) << cases[i].text;
}

// Both make the same text of Crest's own templates.
TEST(Jinja, RendersCrestsTemplates) {
  const Tokenizer tokenizer = Tokenizer::bytes();
  const ChatMessage messages[] = {
      {ChatRole::system, " S {{ x }}"}, {ChatRole::user, "Q\n"}, {ChatRole::assistant, "<b> A"}, {ChatRole::user, "R"}};
  const char* roles[] = {"system", "user", "assistant"};
  for (auto& form : chat_templates())
    for (size_t skipped : {0, 1}) {
      SCOPED_TRACE(form.name);
      const auto some = std::span(messages).subspan(skipped);
      Json asked = {{"messages", Json::array()}, {"add_generation_prompt", true}, {"eos_token", "<|endoftext|>"}};
      for (auto& m : some) asked["messages"].push_back({{"role", roles[size_t(m.role)]}, {"content", m.content}});
      std::string text;
      for (auto& part : ChatFormat(form.name, &tokenizer).prompt(some))
        text += part.token ? tokenizer.decode_token(*part.token) : part.text;
      EXPECT_EQ(JinjaTemplate(form.jinja, "template").render(asked), text);
    }
}

TEST(Jinja, ErrorsNameTheLine) {
  const Case wrong[] = {
      {"\n{{ 'a }}", "a text has no end"},
      {"\n{{ 1", "{{ has no end }}"},
      {"\n{% if true %}", "{% elif or else or endif %} is missing"},
      {"\n{% for x in y %}{% endif %}", "'endif' has no place here"},
      {"\n{{ 1 + }}", "an expression is missing"},
      {"\n{{ ) }}", "')' closes nothing"},
      {"\n{{ a b }}", "'b' has no place here"},
      {"\n{% include 'x' %}", "Crest does not know the statement 'include'"},
      {"\n{{ 1 | frobnicate }}", "Crest does not know the filter 'frobnicate'"},
      {"\n{{ 1 is frobnicated }}", "Crest does not know the test 'frobnicated'"},
      {"\n{{ 'a'.encode() }}", "Crest does not know the method 'encode' of a text"},
      {"\n{{ frobnicate() }}", "Crest does not know the function 'frobnicate'"},
      {"\n{{ 1 + 'a' }}", "'+' of a number and a text"},
      {"\n{{ missing + 'a' }}", "'missing' is undefined"},
      {"\n{{ missing.a }}", "'missing' is undefined, so it has no 'a'"},
      {"\n{{ 1 // 0 }}", "a division by zero"},
      {"\n{% set pair.x = 1 %}", "'pair' is not a namespace"},
      {"\n{{ pair | tojson(sort_keys=true) }}", "does not know 'sort_keys' of 'tojson'"},
      {"\n{{ (0 - 9223372036854775807 - 1) | abs }}", "a number is too large"},
      {"\n{% break %}", "outside of a loop"},
      {"\n{{ 'Ü' | lower }}", "'lower' of letters beyond ASCII"},
      {"\n{{ raise_exception('No system\x1b') }}", "the template refuses the conversation: No system\\x1b"}};
  for (auto& c : wrong) {
    SCOPED_TRACE(c.text);
    const std::string said = refusal(c.text);
    EXPECT_NE(said.find(c.expected), std::string::npos) << said;
    EXPECT_NE(said.find("template, line 2"), std::string::npos) << said;
  }
}

// A template comes from a file of somebody else: whatever it asks for ends soon.
TEST(Jinja, AHostileTemplateIsRefused) {
  auto repeated = [](const std::string& part, int count) {
    std::string all;
    for (int i = 0; i < count; ++i) all += part;
    return all;
  };
  const std::string deep = repeated("[", 5000) + repeated("]", 5000);
  for (const std::string& text : std::vector<std::string>{
           "{{ " + deep + " }}", "{{ " + repeated("(", 5000), "{{ " + repeated("not ", 5000) + "1 }}",
           "{{ " + repeated("-", 5000) + "1 }}", repeated("{% if true %}", 5000),
           "{{ 1" + repeated(" + 1", 5000) + " }}", "{{ a" + repeated(".b", 5000) + " }}",
           "{% for i in range(9999) %}{% for j in range(9999) %}{% endfor %}{% endfor %}",
           "{% set ns = namespace(x='ab') %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
           "{% set ns = namespace(x=[]) %}{% for i in range(9999) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}",
           "{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}", "{{ 'a' * 999999999999 }}",
           "{{ range(999999999) }}", "{{ range(0 - 9223372036854775807 - 1, 0) }}",
           "{{ ('a' * 9999).replace('a', 'b' * 9999) }}",
           "{% set x = 'a' * 999999 %}{{ [x, x, x, x, x, x, x, x, x, x] | map('upper') | join }}",
           "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "{{ 9999999999 * 9999999999 }}", "{{ 9 ** 99 }}"})
    EXPECT_NE(refusal(text), "") << text.substr(0, 60);
  // No beginning of a template crashes.
  const std::string whole =
      "{%- for m in messages[1:] if m.role != 'x' -%}\n {{ '<' + m['role'] | trim ~ \"\\n\" }}"
      "{# c #}{% set a = {'b': [1, 2.5]} %}{% if a.b is defined %}{{- a.get('b')[0] -}}{% endif %}"
      "{% raw %}{{{% endraw %}{% endfor %}";
  EXPECT_EQ(refusal(whole), "");
  size_t refused = 0;
  for (size_t size = 0; size < whole.size(); ++size) refused += !refusal(whole.substr(0, size)).empty();
  EXPECT_GT(refused, whole.size() / 2);
}
