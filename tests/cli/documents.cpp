// Every `crest` command in a code block of README.md, CONTRIBUTING.md and docs/ (not results/) runs
// here, as in a shell. A wrapper makes the commands tiny: models, steps, batches and samples
// shrink. Inputs assumed by a document (a text, data, a run) are put in their place. All other
// words of a command stay, including every flag, and it must end with code 0.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <regex>

#include "host/external.h"
#include "packed.h"
#include "run.h"
#include "train_harness.h"

using namespace crest;
using namespace crest::test;
namespace fs = std::filesystem;

namespace {

// Commands not run here. Their flags are still looked up in `crest COMMAND --help-all`.
struct Exception {
  const char* pattern;  // of `case` in a shell, over the words of the command between blanks
  const char* reason;
};
constexpr Exception exceptions[] = {
    {"' data get-gpt2-tokenizer '*", "needs a network"},
    {"' import '*", "needs checkpoints of other programs; tests/interop makes them"},
    {"' devices '*'--measure '*", "takes ten seconds; tests/cli/devices.cpp runs it"},
    {"' calibrate '*|' tune '*", "measures for minutes; tests/cli/tune.cpp runs it. Searches that only plan do run"},
    {"*' --init base '*", "needs a model of transformers; tests/interop/guide.py runs its page"},
    {"*' --init model '*", "needs a model of transformers; tests/interop/guide.py runs its page"},
    {"*' --model model '*", "needs a model of transformers; tests/interop/guide.py runs its page"},
    {"*' --model models/qwen '*", "needs the sizes of a model of transformers"},
    {"' export '*' nanogpt '*", "needs a model with nanoGPT's GELU; tests/interop exports one"},
    {"' runs export '*' --to wandb '*", "needs the package wandb; tests/cli/runs_tracker.cpp has one"},
    {"' watch '*", "serves pages until Ctrl-C; tests/cli/watch.cpp runs it"},
    {"' comm '*", "needs a loopback device and Gloo, or GPUs; tests/cli/comm.cpp runs it"},
    {"*'--cublaslt '*|*'--cudnn '*|*'--libraries '*", "needs CUDA's libraries"},
};

const char* const wrapper = R"sh(#!/bin/sh
# Usage as of crest. template: what documents take for granted. CREST_TEST_LOG: a line for each call.
set -u
template=$CREST_TEST_TEMPLATE real=$CREST_TEST_REAL
reason=${CREST_TEST_ONLY_FLAGS:-}
case " $* " in
EXCEPTIONS
esac
case " $* " in *' --device c'*) ;; ' tune '*' --device '* | ' tune '*' --longest-context '*) reason= ;; esac
echo "crest $*${reason:+ ($reason)}" >>"$CREST_TEST_LOG"

command=${1:-}
subcommand=
case $command in data | lab | runs) subcommand=${2:-} ;; esac
case $subcommand in -*) subcommand= ;; esac

if [ -n "$reason" ]; then
  help=$("$real" "$command" $subcommand --help-all) || exit
  for word; do
    case $word in
      --?*)
        flag=${word%%=*}
        printf '%s\n' "$help" | grep -qE -- "(^|[ ,])$flag([ ,]|\$)" || {
          echo "crest $command $subcommand has no option $flag" >&2
          exit 2
        } ;;
    esac
  done
  exit 0
fi

# stage KIND PATH: puts the template's KIND there, unless the path exists or is not one of this folder.
stage() {
  case $2 in /* | -* | '') return ;; esac
  [ ! -e "$2" ] || return 0
  case $1 in toml) [ ! -e block.toml ] || { cp block.toml "$2"; return; } ;; esac
  mkdir -p "$(dirname "$2")"
  cp -r "$template/$1" "${2%/}"
}
# scaled NUMBER DIVISOR LEAST; a word in capitals stands for a number.
scaled() {
  case $1 in *[!A-Z]* | '') ;; *) echo 4; return ;; esac
  case $1 in *[!0-9]* | '') echo "$1"; return ;; esac
  value=$(($1 / $2))
  [ "$value" -ge "$3" ] && echo "$value" || echo "$3"
}
scaled_list() {
  list=
  for value in $(echo "$1" | tr ',' ' '); do list=$list,$(scaled "$value" "$2" "$3"); done
  echo "${list#,}"
}

measures= planned=
case $command in
  bench | profile) measures=yes ;;
  compare) case " $* " in *' --a '*) measures=yes ;; esac ;;
  plan | program) planned=yes ;;
esac
flags=" "
left=$# previous= number=0
while [ "$left" -gt 0 ]; do
  word=$1
  shift
  left=$((left - 1))
  number=$((number + 1))
  case $previous in
    --steps) word=$(scaled "$word" 500 2) ;;
    --stop-after) word=1 ;;
    --val-every | --save-every | --sample-every) word=$(scaled "$word" 500 1) ;;
    --warmup | --val-batches | --batches) word=1 ;;
    --max-seconds) word=0.2 ;;
    --samples) word=4 ;; # the least number of rounds
    --product) word=64x64x64 ;;
    --max-tokens) word=8 ;;
    --seq) [ -n "$planned" ] || word=32 ;;
    --batch) [ -n "$planned" ] || word=$(scaled_list "$word" 4 1) ;;
    --model) [ -n "$planned" ] || word=tiny.toml ;;
    --scale) word=tiny ;;
    --budget) word=1s ;;
    --device)
      case "$planned $word" in
        'yes cuda'*) word=h200 ;;
        *' cuda'*) word=cpu ;;
        *.toml) stage toml "$word" ;;
      esac ;;
    --data) stage data "${word%:[0-9]*}" ;;
    --text) stage text.txt "$word" ;;
    --tasks) for file in $(echo "$word" | tr ',' ' '); do stage task.jsonl "$file"; done ;;
    --run | --resume | --init) stage run "$word" ;;
    --config)
      case $word in
        */config.toml) stage run "$(dirname "$word")" ;;
        *) stage flags.toml "$word" ;;
      esac ;;
    --tokenizer)
      case $word in
        bpe:*) word=bpe:300 ;;
        */checkpoints/*.json) stage run "${word%%/checkpoints/*}" && stage data/tokenizer.json "$word" ;;
        *.json) stage data/tokenizer.json "$word" ;;
      esac ;;
    --prompt-file) stage text.txt "$word" ;;
    --overwrite | --quiet | --json | --no-store | --deterministic | --wait-for-saves | --all | --yes | [!-]* | '')
      case $number:$word in
        1:* | *:-*) ;;
        2:*) [ -n "$subcommand" ] || positional=yes ;;
        *) positional=yes ;;
      esac
      if [ -n "${positional:-}" ]; then
        positional=
        case "$command $subcommand:$word" in
          'data prepare:chat.jsonl.gz') stage chat.jsonl.gz "$word" ;;
          'train :'*.jsonl | 'data prepare:'*.jsonl) stage records.jsonl "$word" ;;
          'train :'*.* | 'data prepare:'*.*) stage text.txt "$word" ;;
          'train :'* | 'data prepare:'*) stage corpus "$word" ;;
          'data show:'*) stage data "$word" ;;
          'lab run:'*.toml) stage toml "$word" ;;
          'runs delete:'*) ;;
          'runs import:'*.log | 'report :'*.log | 'compare :'*.log) stage train.log "$word" ;;
          'runs import:'*.txt | 'report :'*.txt) stage results.txt "$word" ;;
          'runs import:'* | 'report :'*.jsonl* | 'compare :'*.jsonl*) stage runs.jsonl "${word%%#*}" ;;
          'runs show:'[0-9]* | 'report :'[0-9]* | 'compare :'[0-9]*) [ "$word" -le 10 ] || word=10 ;;
          'report :'*/* | 'compare :'*/* | 'runs show:'*/*) stage run "$word" ;;
          'report :'* | 'compare :'*) ;;
        esac
      fi ;;
  esac
  case "$command $subcommand:$previous" in
    'train :--out' | 'data prepare:--out') case $word in /*) ;; *) rm -rf "./$word" ;; esac ;;
  esac
  flags="$flags$word "
  previous=$word
  set -- "$@" "$word"
done
has() { case $flags in *" $1 "*) return 0 ;; esac; return 1; }

case "$command $subcommand" in
  'train ')
    if ! has --resume && ! has --config; then
      has --model || has --init || set -- "$@" --model tiny.toml
      has --steps || set -- "$@" --steps 2
      has --seq || set -- "$@" --seq 32
    fi
    has --batch || has --resume || has --config || set -- "$@" --batch 2 ;;
  'chat ') has --chat-template || set -- "$@" --chat-template plain ;; # the template's run has none
  'sample ') has --max-tokens || set -- "$@" --max-tokens 8 ;;
  'eval ') has --batches || has --text || has --tasks || set -- "$@" --batches 1 ;;
  'tune ') has --longest-context || set -- "$@" --search-seconds 0.2 ;;
  'lab run') has --budget || set -- "$@" --budget 1s ;;
  'runs delete') has --yes || set -- "$@" --yes ;;
esac
if [ -n "$measures" ]; then
  if ! has --product; then
    has --model || set -- "$@" --model tiny.toml
    case " $* " in
      *' --phase decode '*) ;; # for one sequence
      *) has --batch || set -- "$@" --batch 2 ;;
    esac
  fi
  has --samples || set -- "$@" --samples 4
  has --warmup || set -- "$@" --warmup 0
  case $command in
    bench) has --no-mfu || set -- "$@" --no-mfu ;;
    *) has --rates || set -- "$@" --rates h200 ;;
  esac
fi
# A time is predicted where there is a calibration: one of those that come with Crest.
if has --as-profile && ! has --device; then set -- "$@" --device h200; fi
if [ "$command" = advise ] && has --measure; then set -- "$@" --max-seconds 0.05; fi
case $command in train | bench | profile | advise) has --threads || set -- "$@" --threads 1 ;; esac
exec "$real" "$@"
)sh";

// A command line of a code block.
struct Line {
  int number;
  std::string text;
  int calls;  // of crest, surely made by the line
};

struct Document {
  std::vector<Line> lines;
  std::vector<std::string> wrong;   // visible without running it
  std::optional<std::string> toml;  // the first block of TOML
};

const std::regex call(R"((^|[|;&(]\s*|\bdo\s+|\bcrest_test_launcher .*)crest\s)");
const fs::path repository = fs::path(CREST_TEST_DIR) / "..";

// Make's targets by name, and the paths of scripts: do they exist?
void look_up(const std::string& text, int number, Document& d) {
  static const std::string makefile = [] {
    std::ifstream in(repository / "Makefile");
    return std::string{std::istreambuf_iterator<char>(in), {}};
  }();
  std::string command = text.substr(0, text.find(" #"));
  std::smatch m;
  if (std::regex_search(command, m, std::regex(R"(^make((\s+[a-z][a-z-]*)+))"))) {
    std::istringstream targets(m[1]);
    for (std::string target; targets >> target;)
      if (!std::regex_search(makefile, std::regex("(^|\n)([a-z-]+ )*" + target + "( [a-z-]+)*:")))
        d.wrong.push_back(std::to_string(number) + ": no target " + target + " in the Makefile");
  }
  static const std::regex path(R"((^|[\s'"(/])((scripts|tests|studies|\.ci)/[A-Za-z0-9_./-]*[A-Za-z0-9_]))");
  for (std::sregex_iterator i(command.begin(), command.end(), path), end; i != end; ++i)
    if (std::string file = (*i)[2];
        file.find("build/") == std::string::npos && (*i)[1] != "/" && !fs::exists(repository / file))
      d.wrong.push_back(std::to_string(number) + ": there is no " + file);
}

Document read_document(const std::string& markdown) {
  Document d;
  std::istringstream in(markdown);
  std::string language, toml, joined;
  bool inside = false, commands = false, prompts = false, first = false;
  int number = 0, start = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (line.starts_with("```")) {
      inside = !inside;
      if (inside) {
        language = line.substr(3), first = true, toml.clear(), joined.clear();
        commands = language == "sh" || language == "bash" || language == "console";
        prompts = language == "console";
      } else if (language == "toml" && !d.toml) {
        d.toml = toml;
      }
      continue;
    }
    if (!inside) continue;
    if (language == "toml") toml += line + "\n";
    if (first && language.empty()) {  // commands, or the output of a program
      prompts = line.starts_with("$ ");
      commands = prompts || line.starts_with("crest ");
    }
    first = false;
    if (!commands) continue;
    if (joined.empty()) {
      start = number;
      if (prompts && !line.starts_with("$ ")) continue;  // output
      if (prompts) line = line.substr(2);
    }
    bool more = !line.empty() && line.back() == '\\';
    joined += more ? line.substr(0, line.size() - 1) + " " : line;
    if (more) continue;
    std::string text = joined;
    joined.clear();
    look_up(text, start, d);
    // Launchers start crest once a rank.
    text = std::regex_replace(text, std::regex(R"(\[(--[^\]]*)\])"), "$1");  // an optional argument
    text = std::regex_replace(text, std::regex(R"(^(torchrun|mpirun|srun) )"), "crest_test_launcher ");
    auto calls = std::distance(std::sregex_iterator(text.begin(), text.end(), call), std::sregex_iterator());
    if (calls) d.lines.push_back({start, text, int(calls)});
  }
  return d;
}

// Assumed by documents, made once: texts, data, a run, a run database, commands.
class Template : public TrainFolder {
 public:
  Template() : TrainFolder(2000) {
    write("tiny.toml",
          "preset = \"nano\"\nname = \"tiny\"\nlayers = 2\nheads = 2\nkv_heads = 2\nwidth = 32\nhead_dim = 16\n"
          "ff = 128\ncontext = 64\nvocab = 257\n");
    write("corpus/a.txt", sample_text(300));
    std::string records;
    for (int i = 0; i < 200; ++i)
      records += "{\"prompt\": \"Q" + std::to_string(i) + "?\", \"answer\": \"A" + std::to_string(i) +
                 "\", \"text\": \"some text\"}\n";
    // Lines with other keys are documents of `--text-key`.
    write("records.jsonl", records);
    write("task.jsonl", "{\"goal\": \"Cut bread\", \"sol1\": \"knife\", \"sol2\": \"spoon\", \"label\": 0}\n");
    std::string chat;
    for (int i = 0; i < 100; ++i)
      chat += "{\"messages\": [{\"role\": \"user\", \"content\": \"Q" + std::to_string(i) +
              "\"}, {\"role\": \"assistant\", \"content\": \"A\"}]}\n";
    write("chat.jsonl.gz", gzipped(chat));
    write("flags.toml", "steps = 2\n");
    write("toml", std::string(byte_model));
    std::string log;
    for (int i = 1; i < 30; ++i) log += "iter " + std::to_string(i) + ": loss 3.1415, time 123.45ms, mfu 12.30%\n";
    write("train.log", log);
    write("results.txt", "A) fp32\nB16: dt 340 ms 48 k tok/s 39 GB\nB32: dt 670 ms 49 k tok/s 77 GB (OOM)\n");
    expect(run_crest({"train", "--data", "data", "--model", "tiny.toml", "--batch", "2", "--seq", "32", "--steps", "2",
                      "--threads", "1", "--out", "run"},
                     options()));
    // Run 10, the last one in documents, is a profile: it has every document.
    bench("1,2,3,4,5,6,7,8");
    expect(run_crest({"profile", "--model", "tiny.toml", "--batch", "2", "--threads", "1", "--samples", "2", "--warmup",
                      "0", "--rates", "h200"},
                     options()));
    bench("1,2,3,4,5,6,7,8");
    expect(run_crest({"runs", "export", "--kind", "bench", "-o", "runs.jsonl"}, options()));
    std::string cases;
    for (auto& e : exceptions) cases += std::string("  ") + e.pattern + ") reason='" + reason(e) + "' ;;\n";
    std::string text = wrapper;
    text.replace(text.find("EXCEPTIONS\n"), 11, cases);
    command("crest", text);
    command("crest_test_launcher",
            "#!/bin/sh\nwhile [ \"$1\" != crest ]; do shift; done\nshift\n"
            "CREST_TEST_ONLY_FLAGS='needs a launcher' exec crest \"$@\"\n");
    command("bzcat", "#!/bin/sh\nexec cat '" + (*this / "records.jsonl") + "'\n");
    command("less", "#!/bin/sh\nexec cat\n");
  }

 private:
  void bench(const std::string& batches) {
    expect(run_crest({"bench", "--model", "tiny.toml", "--batch", batches, "--threads", "1", "--samples", "2",
                      "--warmup", "0", "--no-mfu", "--yes"},
                     options()));
  }
  static std::string reason(const Exception& e) {
    return std::regex_replace(std::string(e.reason), std::regex("'"), "'\\''");
  }
  void command(const std::string& name, const std::string& text) {
    fs::permissions(write("bin/" + name, text), fs::perms::owner_all);
  }
  static void expect(const RunResult& r) { EXPECT_EQ(r.code, 0) << r.out << r.err; }
};

// Runs the commands of a document in a folder of its own; reports failures.
std::vector<std::string> failures_of(const Document& d) {
  static Template all;
  TempFolder folder;
  std::string here = folder.path().string();
  for (const char* name : {"tiny.toml", "crest.db"}) fs::copy_file(all / name, here + "/" + name);
  if (d.toml) folder.write("block.toml", *d.toml);
  std::vector<Variable> variables = {{"PATH", all / "bin" + ":" + std::getenv("PATH")},
                                     {"HOME", here},
                                     {"CREST_STORE", here + "/crest.db"},
                                     {"CREST_CACHE", all / "cache"},
                                     {"CREST_TEST_REAL", crest_binary()},
                                     {"CREST_TEST_TEMPLATE", all.path().string()},
                                     {"CREST_TEST_LOG", here + "/calls"},
                                     {"CUDA_VISIBLE_DEVICES", ""},
                                     {"OMP_WAIT_POLICY", "passive"}};
  std::string prepare = "cd '" + here + "' && unset";
  for (const char* name : callers_variables) prepare += std::string(" ") + name;
  std::vector<std::string> failures = d.wrong;
  for (auto& line : d.lines) {
    folder.write("calls", "");
    CommandOutput r = run_program("/bin/sh", {"sh", "-c", prepare + " && " + line.text}, variables);
    std::string calls = folder.read("calls"), shown = std::to_string(line.number) + ": " + line.text + "\n" + calls;
    if (r.exit_code != 0)
      failures.push_back(shown + "exit code " + std::to_string(r.exit_code) + "\n" + r.err);
    else if (std::count(calls.begin(), calls.end(), '\n') < line.calls)
      failures.push_back(shown + "not every crest of it was called\n" + r.err);
  }
  return failures;
}

std::vector<std::string> documents() {
  std::vector<std::string> names;
  for (const char* name : {"README.md", "CONTRIBUTING.md", "src/README.md"})
    if (fs::exists(repository / name)) names.push_back(name);
  for (fs::recursive_directory_iterator i(repository / "docs"), end; i != end; ++i) {
    if (i->path().filename() == "results") i.disable_recursion_pending();  // commands of their day
    if (i->path().extension() == ".md") names.push_back(fs::relative(i->path(), repository).string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

class Documents : public testing::TestWithParam<std::string> {};

}  // namespace

TEST_P(Documents, CommandsRun) {
  std::ifstream in(repository / GetParam());
  Document d = read_document({std::istreambuf_iterator<char>(in), {}});
  for (auto& failure : failures_of(d)) ADD_FAILURE() << GetParam() << ":" << failure;
}

INSTANTIATE_TEST_SUITE_P(Cli, Documents, testing::ValuesIn(documents()), [](const auto& info) {
  return std::regex_replace(info.param, std::regex("[^A-Za-z0-9]"), "_");
});

TEST_P(Documents, LinksLeadToFiles) {
  std::ifstream in(repository / GetParam());
  std::string text{std::istreambuf_iterator<char>(in), {}};
  static const std::regex link(R"(\]\(([^)#\s]+)(#[^)\s]*)?\))");
  for (std::sregex_iterator i(text.begin(), text.end(), link), end; i != end; ++i) {
    std::string target = (*i)[1];
    if (target.find("://") != std::string::npos) continue;
    EXPECT_TRUE(fs::exists((repository / GetParam()).parent_path() / target)) << GetParam() << " links to " << target;
  }
}

namespace {

bool has_flag(const std::string& help, const std::string& flag) {
  for (size_t at = help.find(flag); at != std::string::npos; at = help.find(flag, at + 1))
    if (at > 0 && help[at - 1] == ' ' && std::string(" ,\n").find(help[at + flag.size()]) != std::string::npos)
      return true;
  return false;
}

// The options of a command, empty where there is no such command.
const std::string& help_of(const std::string& command) {
  static std::map<std::string, std::string> known;
  auto [at, is_new] = known.try_emplace(command);
  if (is_new) {
    RunResult r = run_crest({command, "--help-all"});
    if (r.code == 0) at->second = r.out;
  }
  return at->second;
}

// Flags in code within sentences and tables: `crest COMMAND --flag ...` needs a flag of this
// command, `--flag` alone a flag of any.
std::vector<std::string> unknown_flags(const std::string& markdown, bool alone) {
  static const std::string every = [] {
    std::string all;
    std::istringstream help(run_crest({"--help"}).out);
    for (std::string line; std::getline(help, line);)
      if (line.starts_with("  ") && line.size() > 3 && line[2] != ' ')
        all += help_of(line.substr(2, line.find(' ', 2) - 2));
    return all;
  }();
  std::string text;
  bool inside = false;
  std::istringstream lines(markdown);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("```"))
      inside = !inside;
    else if (!inside)
      text += line + "\n";
  }
  std::vector<std::string> unknown;
  static const std::regex span(R"(`((crest [a-z]+|--[a-z])[^`]*)`)"), flag(R"((^|[\s\[|])(--[a-z][a-z0-9-]*))");
  for (std::sregex_iterator i(text.begin(), text.end(), span), end; i != end; ++i) {
    std::string code = (*i)[1], command;
    if (code.starts_with("crest ")) {
      command = code.substr(6, code.find_first_not_of("abcdefghijklmnopqrstuvwxyz", 6) - 6);
      if (command == "help" || command == "hello") continue;  // hello: of develop/add-a-subcommand.md
      if (help_of(command).empty()) unknown.push_back("crest has no command " + command + ": " + code);
    } else if (!alone) {
      continue;
    }
    for (std::sregex_iterator f(code.begin(), code.end(), flag); f != end; ++f)
      if (!has_flag(command.empty() ? every : help_of(command), (*f)[2]))
        unknown.push_back((*f)[2].str() + ": " + code);
  }
  return unknown;
}

}  // namespace

TEST_P(Documents, FlagsInSentencesAreKnown) {
  std::ifstream in(repository / GetParam());
  std::string name = GetParam();
  bool for_users = name == "README.md" || name.starts_with("docs/how-to/") || name.starts_with("docs/start/");
  for (auto& flag : unknown_flags({std::istreambuf_iterator<char>(in), {}}, for_users))
    ADD_FAILURE() << name << ": " << flag;
}

TEST(DocumentReader, FindsUnknownFlagsInSentences) {
  std::string text =
      "`crest plan --no-such` `crest nothing` `--model x` `--no-such-either`\n```\n`crest plan --block`\n```\n";
  EXPECT_EQ(unknown_flags(text, true),
            (std::vector<std::string>{"--no-such: crest plan --no-such", "crest has no command nothing: crest nothing",
                                      "--no-such-either: --no-such-either"}));
  EXPECT_EQ(unknown_flags(text, false).size(), 2u);
}

TEST(DocumentIndex, HasEveryPage) {
  std::ifstream in(repository / "docs/README.md");
  std::string index{std::istreambuf_iterator<char>(in), {}};
  for (auto& name : documents())
    if (name != "docs/README.md" && name.starts_with("docs/")) {
      EXPECT_NE(index.find("](" + name.substr(5) + ")"), std::string::npos) << name;
    }
}

TEST(DocumentReader, FindsWrongCommands) {
  Document d = read_document(
      "Text\n```sh\n"
      "crest plan --model nano # fine\n"
      "crest plan --model nano --no-such-flag\n"
      "crest plan --model no-such-model\n"
      "crest import model.bin --no-such-flag --out x   # its flags are looked up\n"
      "crest import model.bin --out x\n"
      "make test no-such-target\n"
      "sh scripts/no-such-script.sh\n"
      "false | crest train input.txt \\\n"
      "  --steps 4000 --optimizer none\n"
      "```\n```\n$ crest plan --model nano\ncrest prints this\n```\n```\nnot a command\n```\n");
  std::vector<std::string> failures = failures_of(d), start;
  for (auto& f : failures) start.push_back(f.substr(0, f.find('\n')));
  EXPECT_EQ(start, (std::vector<std::string>{
                       "8: no target no-such-target in the Makefile", "9: there is no scripts/no-such-script.sh",
                       "4: crest plan --model nano --no-such-flag", "5: crest plan --model no-such-model",
                       "6: crest import model.bin --no-such-flag --out x   # its flags are looked up",
                       "10: false | crest train input.txt    --steps 4000 --optimizer none"}));
  EXPECT_EQ(d.lines.size(), 7u);
}
