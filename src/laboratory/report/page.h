// A document as a list of blocks, rendered as one self-contained HTML file or as Markdown with
// separate SVG files. All text is plain: only this code escapes it.
#pragma once
#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "charts/svg.h"
#include "terminal/table.h"

namespace crest {

// How a text looks. good, bad, open and soft are for verdicts on claims.
enum class Look { plain, best, missing, good, bad, open, soft };

// Text with emphasis.
class Text {
 public:
  Text() = default;
  Text(const char* plain) { add(plain); }
  Text(const std::string& plain) { add(plain); }
  Text& add(const std::string& plain) { return push(plain, Style::plain); }
  Text& strong(const std::string& text, Look look = Look::plain) { return push(text, Style::strong, look); }
  Text& code(const std::string& text) { return push(text, Style::code); }
  // A link to the heading with this id.
  Text& link(const std::string& text, const std::string& id);
  Text& append(const Text& other);
  bool empty() const { return pieces_.empty(); }
  std::string plain() const;
  std::string html() const;
  std::string markdown() const;

 private:
  enum class Style { plain, code, strong };
  struct Piece {
    std::string text;
    Style style;
    Look look;
    std::string link;  // id of a heading; "": none
  };
  Text& push(const std::string& text, Style style, Look look = Look::plain);
  std::vector<Piece> pieces_;
};

struct Heading {
  int level = 2;
  std::string text;
  std::string id = {};  // target of links; "": made from the text of level 2, else none
};
struct Paragraph {
  Text text;
  bool note = false;  // smaller and soft
};
struct Warning {
  Text text;
};
struct Bullets {
  std::vector<Text> items;
};
// A few key figures in large type.
struct Tiles {
  struct Tile {
    std::string label, value, note;
    Look look = Look::plain;
  };
  std::vector<Tile> tiles;
};
struct PageCell {
  PageCell() = default;
  PageCell(std::string t) : text(std::move(t)) {}
  PageCell(const char* t) : text(t) {}
  std::string text;
  Look look = Look::plain;
  double bar = -1;         // 0 to 1: a bar next to the text; negative: none
  std::string link = {};   // id of the linked heading; "": none
  std::string under = {};  // a second line
  // One square for each counted thing instead of the text. The text becomes their description.
  std::vector<std::pair<Look, size_t>> squares = {};
};
struct PageTable {
  std::vector<Column> columns;
  std::vector<std::vector<PageCell>> rows;
  std::string note;      // below it
  bool compact = false;  // no wider than its content
  bool folded = false;   // under `summary`, opened on demand
  std::string summary;
};
struct Figure {
  std::string title;
  Text caption;
  std::function<Svg(double width)> draw;
  PageTable numbers;  // the data of the figure
};
struct Commands {
  std::vector<std::string> lines;
};
struct PageBlock;
// Blocks under a summary, opened on demand.
struct Fold {
  Text summary;
  std::vector<PageBlock> blocks;
  // note: small and soft. item: an item of a list. entry: folded on a narrow screen only.
  enum Kind { note, item, entry } kind = note;
  std::string tag = {};  // of an item, for an ItemFilter
};
// Buttons: all items of entries, or only the items with one tag (HTML only; without a script).
struct ItemFilter {
  struct Choice {
    std::string tag, label;
  };
  std::vector<Choice> choices;
};
struct PageBlock
    : std::variant<Heading, Paragraph, Warning, Bullets, Tiles, PageTable, Figure, Commands, Fold, ItemFilter> {
  using variant::variant;
};

struct Page {
  std::string title, subtitle;
  std::vector<PageBlock> blocks;
  std::string footer;
};

// Moves columns with equal cells in all of several rows into the note, "In all rows: model nano,
// batch 8.", and drops empty columns, except the first `keep` columns.
void move_constants_to_note(PageTable& table, size_t keep = 1);

// At the start of both forms, to mark the file as a report.
inline constexpr const char* page_marker = "crest report";

std::string to_html(const Page& page);

struct MarkdownFiles {
  std::string text;
  std::vector<std::pair<std::string, std::string>> figures;  // file name, SVG
};
// folder: the figures' path in links; "": no figures.
MarkdownFiles to_markdown(const Page& page, const std::string& folder);

// Figure widths in pixels: for screens and paper, and for phones.
inline constexpr double wide_figure = 880, narrow_figure = 352;

// The style sheet (page_style.cpp).
std::string page_css();

}  // namespace crest
