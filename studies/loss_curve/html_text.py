"""Running text of an HTML page: no tags, scripts, navigation or tables of contents; <pre> keeps its line breaks."""
import re
from html.parser import HTMLParser

SKIPPED = {"script", "style", "head", "nav", "header", "footer", "aside", "form", "button", "select", "svg", "noscript"}
BLOCKS = {"p", "div", "section", "article", "ul", "ol", "dl", "table", "blockquote", "h1", "h2", "h3", "h4", "h5", "h6",
          "hr", "title", "figure", "caption", "media"}
LINES = {"br", "li", "dt", "dd", "tr", "item"}
VOID = {"br", "hr", "img", "meta", "link", "input", "col", "area", "base", "wbr", "source", "embed", "param", "track"}
# Elements whose class, id or role says that they are no text of the page.
FURNITURE = re.compile(r"(^|[ _-])(nav(header|footer|igation|bar)?|sidebar\w*|sphinxsidebar\w*|related|toc|toctree\w*|"
                       r"breadcrumbs?|headerlink|footer|langs?|menu|search|qv|quickview|linenos)([ _-]|$)", re.I)


class _Text(HTMLParser):
    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.out, self.open, self.skipping, self.preformatted = [], [], None, 0

    def handle_starttag(self, tag, attrs):
        if tag in VOID:
            self.break_at(tag)
            return
        self.open.append(tag)
        if self.skipping is None:
            names = " ".join(v or "" for k, v in attrs if k in ("class", "id", "role"))
            if tag in SKIPPED or (tag != "body" and tag != "html" and FURNITURE.search(names)):
                self.skipping = len(self.open)
        self.preformatted += tag == "pre"
        self.break_at(tag)

    def handle_startendtag(self, tag, attrs):
        self.break_at(tag)

    def handle_endtag(self, tag):
        if tag not in self.open:
            return
        while self.open:  # also what was left open inside
            last = self.open.pop()
            self.preformatted -= last == "pre"
            if self.skipping is not None and len(self.open) < self.skipping:
                self.skipping = None
            if last == tag:
                break
        self.break_at(tag)

    def break_at(self, tag):
        if self.skipping is None:
            if tag in BLOCKS or tag == "pre":
                self.out.append("\n\n")
            elif tag in LINES:
                self.out.append("\n")
            elif tag in ("td", "th"):
                self.out.append("  ")

    def handle_data(self, data):
        if self.skipping is None:
            self.out.append(data if self.preformatted else re.sub(r"\s+", " ", data))


def html_text(page):
    parser = _Text()
    parser.feed(page)
    parser.close()
    return re.sub(r"\n (?=\S)", "\n", "".join(parser.out))  # a line break in front of a space of the source
