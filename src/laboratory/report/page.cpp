// Text and tables of a page, as HTML and as Markdown.
#include "report/page.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/text.h"
#include "terminal/table.h"

namespace crest {

Text& Text::push(const std::string& text, Style style, Look look) {
  if (!text.empty()) pieces_.push_back({text, style, look, ""});
  return *this;
}

Text& Text::link(const std::string& text, const std::string& id) {
  if (!text.empty()) pieces_.push_back({text, Style::plain, Look::plain, id});
  return *this;
}

Text& Text::append(const Text& other) {
  pieces_.insert(pieces_.end(), other.pieces_.begin(), other.pieces_.end());
  return *this;
}

std::string Text::plain() const {
  std::string out;
  for (auto& p : pieces_) out += p.text;
  return out;
}

namespace {

// Names come from files, so control characters in any form are removed.
std::string clean(const std::string& text) { return printable(text, 4000); }
std::string html_of(const std::string& text) { return escape_xml(clean(text)); }

// Escapes the start of Markdown or HTML, and underscores with a possible meaning.
std::string markdown_of(const std::string& raw) {
  std::string text = clean(raw), out;
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    bool inside =
        i > 0 && i + 1 < text.size() && std::isalnum(uint8_t(text[i - 1])) && std::isalnum(uint8_t(text[i + 1]));
    if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '&')
      out += "&amp;";
    else if (std::string_view("\\`*[]|~").find(c) != std::string_view::npos || (c == '_' && !inside) ||
             (i == 0 && std::string_view("#+-=").find(c) != std::string_view::npos))
      out += std::string("\\") + c;
    else
      out += c;
  }
  return out;
}

// A fence longer than any run of backticks in the text.
std::string fence(const std::string& text, size_t least) {
  size_t longest = 0, run = 0;
  for (char c : text) longest = std::max(longest, run = c == '`' ? run + 1 : 0);
  return std::string(std::max(least, longest + 1), '`');
}

std::string code_markdown(const std::string& raw) {
  std::string text = clean(raw), f = fence(text, 1);
  bool pad = text.front() == '`' || text.back() == '`';
  return f + (pad ? " " : "") + text + (pad ? " " : "") + f;
}

// False if the word would start a list, a heading or a quotation.
bool may_begin_markdown_line(std::string_view word) {
  size_t digits = word.find_first_not_of("0123456789");
  bool number = digits > 0 && digits != std::string_view::npos && (word[digits] == '.' || word[digits] == ')');
  return std::string_view("#+-=*>").find(word[0]) == std::string_view::npos && !number;
}
std::string markdown_lines(const std::string& markdown, const std::string& indent = "") {
  return wrapped(markdown, {.indent = indent, .may_begin_line = may_begin_markdown_line}) + "\n";
}

std::string html_lines(const std::string& html) { return wrapped(html, {}) + "\n"; }

const char* class_of(Look look) {
  static const char* const names[] = {"", "best", "missing", "good", "bad", "open", "soft"};
  return names[size_t(look)];
}

std::string squares_html(const PageCell& cell) {
  std::string out =
      fmt::format("<span class=\"squares\" role=\"img\" aria-label=\"{0}\" title=\"{0}\">", html_of(cell.text));
  for (auto& [look, count] : cell.squares)
    for (size_t i = 0; i < count; ++i) out += fmt::format("<i class=\"{}\"></i>", class_of(look));
  return out + "</span>";
}

constexpr double widest_bar = 110;  // pixels

std::string cell_html(const PageCell& cell, Align align) {
  std::string css = align == Align::right ? "n" : "";
  if (*class_of(cell.look)) css += (css.empty() ? "" : " ") + std::string(class_of(cell.look));
  std::string attributes = css.empty() ? "" : fmt::format(" class=\"{}\"", css);
  std::string bar;
  if (cell.bar >= 0)
    bar = fmt::format("<i class=\"bar\" style=\"width:{:.0f}px\"></i>", widest_bar * std::min(cell.bar, 1.0));
  std::string text = cell.squares.empty() ? html_of(cell.text) : squares_html(cell);
  if (!cell.link.empty()) text = fmt::format("<a href=\"#{}\">{}</a>", html_of(cell.link), text);
  if (!cell.under.empty()) text += fmt::format("<span class=\"under\">{}</span>", html_of(cell.under));
  return fmt::format("<td{}>{}{}</td>", attributes, text, bar);
}

std::string table_html(const PageTable& t) {
  std::string out =
      fmt::format("<div class=\"scroll\" tabindex=\"0\"><table{}>\n<thead><tr>", t.compact ? " class=\"compact\"" : "");
  for (auto& c : t.columns)
    out += fmt::format("<th scope=\"col\"{}>{}</th>", c.align == Align::right ? " class=\"n\"" : "", html_of(c.header));
  out += "</tr></thead>\n<tbody>\n";
  for (auto& row : t.rows) {
    out += "<tr>";
    for (size_t i = 0; i < row.size(); ++i) out += cell_html(row[i], t.columns[i].align);
    out += "</tr>\n";
  }
  out += "</tbody></table></div>\n";
  if (!t.note.empty()) out += fmt::format("<p class=\"note\">{}</p>\n", html_of(t.note));
  if (!t.folded) return out;
  return fmt::format("<details><summary>{}</summary>\n{}</details>\n", html_of(t.summary), out);
}

std::string cell_markdown(const PageCell& cell) {
  std::string text = markdown_of(cell.text);
  if (cell.look == Look::best && !text.empty()) text = "**" + text + "**";
  if (!cell.link.empty()) text = fmt::format("[{}](#{})", text, cell.link);
  if (!cell.under.empty()) text += (text.empty() ? "" : ": ") + markdown_of(cell.under);
  return text;
}

std::string table_markdown(const PageTable& t) {
  std::string out = "|";
  for (auto& c : t.columns) out += fmt::format(" {} |", markdown_of(c.header));
  out += "\n|";
  for (auto& c : t.columns) out += c.align == Align::right ? "---:|" : "---|";
  out += "\n";
  for (auto& row : t.rows) {
    out += "|";
    for (auto& cell : row) out += fmt::format(" {} |", cell_markdown(cell));
    out += "\n";
  }
  if (!t.note.empty()) out += "\n" + markdown_lines(markdown_of(t.note));
  if (!t.folded) return out + "\n";
  return fmt::format("<details><summary>{}</summary>\n\n{}\n</details>\n\n", html_of(t.summary), out);
}

struct Html {
  int figures = 0;

  std::string operator()(const Heading& h) {
    std::string id = id_of(h);
    return fmt::format("<h{0}{2}>{1}</h{0}>\n", h.level, html_of(h.text),
                       id.empty() ? "" : fmt::format(" id=\"{}\"", html_of(id)));
  }
  std::string operator()(const Paragraph& p) {
    return fmt::format("<p{}>{}</p>\n", p.note ? " class=\"note\"" : "", p.text.html());
  }
  std::string operator()(const Warning& w) {
    return fmt::format("<p class=\"warning\" role=\"note\">{}</p>\n", w.text.html());
  }
  std::string operator()(const Bullets& b) {
    std::string out = "<ul>\n";
    for (auto& item : b.items) out += fmt::format("<li>{}</li>\n", item.html());
    return out + "</ul>\n";
  }
  std::string operator()(const Tiles& t) {
    std::string out = "<dl class=\"tiles\">\n";
    for (auto& tile : t.tiles)
      out += fmt::format("<div><dt>{}</dt><dd{}>{}</dd>{}</div>\n", html_of(tile.label),
                         tile.look == Look::plain ? "" : fmt::format(" class=\"{}\"", class_of(tile.look)),
                         html_of(tile.value),
                         tile.note.empty() ? "" : fmt::format("<dd class=\"note\">{}</dd>", html_of(tile.note)));
    return out + "</dl>\n";
  }
  std::string operator()(const PageTable& t) { return table_html(t); }
  std::string operator()(const Figure& f) {
    PageTable numbers = f.numbers;
    numbers.folded = true;
    numbers.summary = "Data of this figure";
    return fmt::format(
        "<figure>\n<figcaption><strong>Figure {}. {}.</strong> {}</figcaption>\n<div class=\"wide\">{}</div>\n"
        "<div class=\"narrow\">{}</div>\n{}</figure>\n",
        ++figures, html_of(f.title), f.caption.html(), f.draw(wide_figure).embedded(), f.draw(narrow_figure).embedded(),
        table_html(numbers));
  }
  std::string operator()(const Commands& c) {
    std::string out = "<pre tabindex=\"0\"><code>";
    for (auto& line : c.lines) out += html_of(line) + "\n";
    return out + "</code></pre>\n";
  }
  std::string operator()(const Fold& f) {
    static const char* const classes[] = {"", "item", "entry"};
    std::string css = classes[f.kind];
    if (!f.tag.empty()) css += " is-" + anchor(f.tag);
    std::string out = fmt::format("<details{}><summary>{}</summary>\n",
                                  css.empty() ? "" : fmt::format(" class=\"{}\"", css), f.summary.html());
    for (auto& block : f.blocks) out += std::visit(*this, block);
    return out + "</details>\n";
  }

  // The chosen button is seen by :has(); a browser without it shows no buttons.
  std::string operator()(const ItemFilter& f) {
    std::string css, buttons = "<label><input type=\"radio\" name=\"filter\" checked> all</label>\n";
    for (auto& c : f.choices) {
      const std::string tag = anchor(c.tag);
      css += fmt::format(":root:has(#only-{0}:checked) .entry > :not(summary):not(.is-{0}) {{ display: none }}\n", tag);
      buttons += fmt::format("<label><input type=\"radio\" name=\"filter\" id=\"only-{}\"> {}</label>\n", tag,
                             html_of(c.label));
    }
    return fmt::format(
        "<style>.filter {{ display: none }}\n@supports selector(:has(a)) {{ @media screen {{\n.filter {{ display: flex "
        "}}\n"
        "{}}} }}</style>\n<div class=\"filter\" role=\"group\" aria-label=\"Claims shown\">\n{}</div>\n",
        css, buttons);
  }

  static std::string id_of(const Heading& h) { return h.id.empty() && h.level == 2 ? anchor(h.text) : h.id; }
  static std::string anchor(const std::string& text) {
    std::string id;
    for (char c : text)
      if (std::isalnum(uint8_t(c)))
        id += char(std::tolower(c));
      else if (!id.empty() && id.back() != '-')
        id += '-';
    return id;
  }
};

struct Markdown {
  std::string folder;
  std::vector<std::pair<std::string, std::string>>& files;
  int figures = 0;

  std::string operator()(const Heading& h) {
    std::string id = h.id.empty() ? "" : fmt::format("<a id=\"{}\"></a>\n\n", html_of(h.id));
    return id + std::string(size_t(h.level), '#') + " " + markdown_of(h.text) + "\n\n";
  }
  std::string operator()(const Paragraph& p) { return markdown_lines(p.text.markdown()) + "\n"; }
  std::string operator()(const Warning& w) { return markdown_lines("> **Note:** " + w.text.markdown(), "> ") + "\n"; }
  std::string operator()(const Bullets& b) {
    std::string out;
    for (auto& item : b.items) out += markdown_lines("- " + item.markdown(), "  ");
    return out + "\n";
  }
  std::string operator()(const Tiles& t) {
    std::string out;
    for (auto& tile : t.tiles)
      out += markdown_lines(fmt::format("- {}: **{}** {}", markdown_of(tile.label), markdown_of(tile.value),
                                        tile.note.empty() ? "" : "(" + markdown_of(tile.note) + ")"),
                            "  ");
    return out + "\n";
  }
  std::string operator()(const PageTable& t) { return table_markdown(t); }
  std::string operator()(const Figure& f) {
    ++figures;
    std::string out;
    if (!folder.empty()) {
      std::string file = fmt::format("figure-{:02}.svg", figures);
      files.push_back({file, f.draw(wide_figure).file(f.title)});
      std::string address;
      for (char c : folder) address += c == ' ' ? std::string("%20") : std::string(1, c);
      out += fmt::format("![{}](<{}/{}>)\n\n", markdown_of(f.title), address, file);
    }
    out += markdown_lines(fmt::format("**Figure {}. {}.** {}", figures, markdown_of(f.title), f.caption.markdown())) +
           "\n";
    PageTable numbers = f.numbers;
    numbers.folded = true;
    numbers.summary = "Data of this figure";
    return out + table_markdown(numbers);
  }
  std::string operator()(const Commands& c) {
    std::string text;
    for (auto& line : c.lines) text += clean(line) + "\n";
    std::string f = fence(text, 3);
    return f + "sh\n" + text + f + "\n\n";
  }
  std::string operator()(const ItemFilter&) { return ""; }
  std::string operator()(const Fold& f) {
    std::string out;
    for (auto& block : f.blocks) out += std::visit(*this, block);
    if (f.kind == Fold::entry) return out;
    return fmt::format("<details>\n{}\n{}</details>\n\n",
                       html_lines(fmt::format("<summary>{}</summary>", f.summary.html())), out);
  }
};

}  // namespace

std::string Text::html() const {
  auto styled = [](const Piece& p) {
    std::string text = html_of(p.text);
    if (p.style == Style::code) return fmt::format("<code>{}</code>", text);
    if (p.style == Style::plain) return text;
    return p.look == Look::plain ? fmt::format("<strong>{}</strong>", text)
                                 : fmt::format("<strong class=\"{}\">{}</strong>", class_of(p.look), text);
  };
  std::string out;
  for (auto& p : pieces_)
    out += p.link.empty() ? styled(p) : fmt::format("<a href=\"#{}\">{}</a>", html_of(p.link), styled(p));
  return out;
}

std::string Text::markdown() const {
  std::string out;
  for (auto& p : pieces_)
    out += !p.link.empty()           ? fmt::format("[{}](#{})", markdown_of(p.text), p.link)
           : p.style == Style::plain ? markdown_of(p.text)
           : p.style == Style::code  ? code_markdown(p.text)
                                     : "**" + markdown_of(p.text) + "**";
  return out;
}

void move_constants_to_note(PageTable& t, size_t keep) {
  if (t.rows.empty()) return;
  std::vector<std::string> constants;
  for (size_t c = t.columns.size(); c-- > keep;) {
    auto& text = t.rows[0][c].text;
    auto says_nothing = [](const std::string& cell) { return cell.empty() || cell == "-" || cell == "- ± -"; };
    const bool empty = std::all_of(t.rows.begin(), t.rows.end(), [&](auto& row) { return says_nothing(row[c].text); });
    if (!empty && !std::all_of(t.rows.begin(), t.rows.end(), [&](auto& row) { return row[c].text == text; })) continue;
    if (!empty && t.rows.size() == 1) continue;
    if (!empty) constants.insert(constants.begin(), t.columns[c].header + " " + text);
    t.columns.erase(t.columns.begin() + ptrdiff_t(c));
    for (auto& row : t.rows) row.erase(row.begin() + ptrdiff_t(c));
  }
  if (!constants.empty()) t.note = "In all rows: " + join(constants, ", ") + "." + (t.note.empty() ? "" : " " + t.note);
}

std::string to_html(const Page& page) {
  std::string contents, body;
  Html form;
  for (auto& block : page.blocks) {
    if (auto* h = std::get_if<Heading>(&block); h && h->level == 2)
      contents += fmt::format("<a href=\"#{}\">{}</a>\n", Html::anchor(h->text), html_of(h->text));
    body += std::visit(form, block);
  }
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
      "<meta name=\"color-scheme\" content=\"light dark\"/>\n<meta name=\"generator\" content=\"{7}\"/>\n"
      "<title>{0}</title>\n<style>\n{1}{2}</style>\n</head>\n<body>\n<header>\n<h1>{0}</h1>\n"
      "<p class=\"subtitle\">{3}</p>\n</header>\n<nav aria-label=\"Sections\">\n{4}</nav>\n<main>\n{5}</main>\n"
      "<footer><p>{6}</p></footer>\n</body>\n</html>\n",
      html_of(page.title), page_css(), figure_css(), html_of(page.subtitle), contents, body, html_of(page.footer),
      page_marker);
}

MarkdownFiles to_markdown(const Page& page, const std::string& folder) {
  MarkdownFiles files;
  Markdown form{folder, files.figures};
  files.text = fmt::format("<!-- {} -->\n# {}\n\n{}\n", page_marker, markdown_of(page.title),
                           markdown_lines(markdown_of(page.subtitle)));
  for (auto& block : page.blocks) files.text += std::visit(form, block);
  files.text += "---\n\n" + markdown_lines(markdown_of(page.footer));
  return files;
}

}  // namespace crest
