#include "report/page.h"

namespace crest {

std::string page_css() {
  return R"(:root {
  color-scheme: light dark;
  --paper: #ffffff; --ink: #1a1f24; --soft: #59636e; --rule: #d9dfe5; --faint: #f4f6f8; --accent: #0b6bb0;
  --best: #e3f0fa; --warn: #fdf3e3; --warn-rule: #e08a00; --shade: #1a1f2440;
  --good: #007354; --bad: #b64700; --open: #7d5a00;
  --good-fill: #00946b; --bad-fill: #d55e00; --open-fill: #c98f00;
}
@media screen and (prefers-color-scheme: dark) { :root {
  --paper: #14181c; --ink: #e8ebee; --soft: #a3adb7; --rule: #323a43; --faint: #1c2126; --accent: #6fb8ee;
  --best: #16324a; --warn: #33270f; --warn-rule: #f0a63a; --shade: #000000b0;
  --good: #35c498; --bad: #ff8f45; --open: #f0cf5a;
  --good-fill: #35c498; --bad-fill: #ff8f45; --open-fill: #f0cf5a;
} }
* { box-sizing: border-box }
html { -webkit-text-size-adjust: 100%; scroll-behavior: smooth }
body {
  margin: 0 auto; max-width: 928px; padding: 0 24px 64px; background: var(--paper); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; overflow-wrap: break-word;
}
header { padding: 56px 0 8px }
h1 { font-size: 34px; line-height: 1.2; letter-spacing: -.015em; margin: 0 0 8px; font-weight: 700 }
.subtitle { color: var(--soft); margin: 0 }
nav { display: flex; flex-wrap: wrap; gap: 4px 20px; border-bottom: 1px solid var(--rule); padding: 12px 0 14px }
nav a { color: var(--soft); text-decoration: none; font-size: 14px }
nav a:hover, nav a:focus { color: var(--accent); text-decoration: underline }
h2 { font-size: 23px; letter-spacing: -.01em; margin: 56px 0 12px; line-height: 1.3 }
h3 { font-size: 17px; margin: 36px 0 8px; line-height: 1.4 }
p, ul { margin: 0 0 14px; max-width: 72ch }
ul { padding-left: 22px } li { margin-bottom: 6px }
code, pre { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; font-size: .875em }
p code, li code { background: var(--faint); padding: 1px 5px; border-radius: 4px }
pre { background: var(--faint); border-radius: 8px; padding: 14px 16px; white-space: pre-wrap; overflow-wrap: anywhere; line-height: 1.5; margin: 0 0 14px }
.warning { background: var(--warn); border-left: 4px solid var(--warn-rule); padding: 10px 14px; border-radius: 0 6px 6px 0 }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(190px, 1fr)); gap: 1px; margin: 24px 0 28px;
  background: var(--rule); border: 1px solid var(--rule); border-radius: 10px; overflow: hidden }
.tiles div { background: var(--paper); padding: 14px 16px 12px }
dt { color: var(--soft); font-size: 13px }
dd { margin: 2px 0 0; font-size: 25px; font-weight: 650; letter-spacing: -.015em; line-height: 1.25; font-variant-numeric: tabular-nums }
dd.note { font-size: 13px; font-weight: 400; letter-spacing: 0; line-height: 1.4; color: var(--soft); margin-top: 4px }
/* A shadow at the edge behind which a table goes on: paper moving along hides it at the ends. */
.scroll { overflow-x: auto; margin: 0 0 8px; background:
  linear-gradient(to right, var(--paper) 40%, transparent) left / 40px 100% no-repeat local,
  linear-gradient(to left, var(--paper) 40%, transparent) right / 40px 100% no-repeat local,
  radial-gradient(farthest-side at 0 50%, var(--shade), transparent) left / 14px 100% no-repeat scroll,
  radial-gradient(farthest-side at 100% 50%, var(--shade), transparent) right / 14px 100% no-repeat scroll }
table { border-collapse: collapse; font-size: 14px; line-height: 1.4; font-variant-numeric: tabular-nums; min-width: 100% }
th { text-align: left; font-weight: 600; color: var(--soft); font-size: 13px; vertical-align: bottom; white-space: normal; border-bottom: 1px solid var(--ink) }
td { border-bottom: 1px solid var(--rule); vertical-align: top }
td { white-space: nowrap } th, td { padding: 7px 14px 7px 0 } .compact { min-width: 0 }
th:last-child, td:last-child { padding-right: 4px }
.n { text-align: right }
td.best { font-weight: 700; color: var(--accent) }
td.missing { color: var(--soft); font-style: italic }
.soft, td.soft, strong.soft { color: var(--soft) }
.good { color: var(--good) } .bad { color: var(--bad) } .open { color: var(--open) }
td.good, td.bad, td.open { font-weight: 600 }
a { color: var(--accent) } td a { text-decoration: none } td a:hover { text-decoration: underline }
.under { display: block; color: var(--soft); font-size: 13px; white-space: normal }
.squares { display: inline-block; max-width: 240px; white-space: normal; line-height: 0 }
.squares i { display: inline-block; width: 10px; height: 10px; margin: 4px 3px 0 0; border-radius: 2px; background: currentColor }
.squares .good { color: var(--good-fill) } .squares .bad { color: var(--bad-fill) }
.squares .open, .squares .soft { background: none; border: 2px solid var(--open-fill) } .squares .soft { border-color: var(--soft) }
.bar { display: block; height: 3px; background: var(--accent); border-radius: 2px; margin-top: 3px; min-width: 1px }
td.n .bar { margin-left: auto }
.note { color: var(--soft); font-size: 14px }
figure { margin: 26px 0 18px }
figcaption { margin-bottom: 10px; max-width: 72ch; font-size: 15px; color: var(--soft) }
figcaption strong { color: var(--ink) }
figure svg { display: block; width: 100%; height: auto }
.narrow { display: none }
details { margin: 6px 0 8px }
summary { cursor: pointer; color: var(--soft); font-size: 14px; padding: 4px 0 }
summary:hover { color: var(--accent) }
.filter { flex-wrap: wrap; gap: 4px 18px; margin: 8px 0 16px; color: var(--soft); font-size: 15px }
.filter input { accent-color: var(--accent); margin: 0 4px 0 0 }
.item { margin: 0 0 8px; max-width: 76ch } .item > summary { color: var(--ink); font-size: 16px; padding: 2px 0 2px 18px; text-indent: -18px }
.item > :not(summary) { margin-left: 18px; font-size: 14px; color: var(--soft) }
/* An entry is open on paper and on a wide screen, where the browser can show a closed one. */
@supports selector(details::details-content) {
  @media print, (min-width: 601px) {
    .entry > summary { display: none } .entry::details-content { content-visibility: visible; display: block }
  }
}
a:focus-visible, summary:focus-visible, .scroll:focus-visible, pre:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px }
footer { margin-top: 56px; border-top: 1px solid var(--rule); padding-top: 14px; color: var(--soft); font-size: 14px }
@media (max-width: 600px) {
  body { padding: 0 16px 48px; font-size: 16px } header { padding-top: 32px } h1 { font-size: 27px } h2 { margin-top: 44px }
  .item { margin-bottom: 4px } .item > summary { font-size: 15px; line-height: 1.45 } h3 { margin-top: 28px }
  .wide { display: none } .narrow { display: block } .tiles { grid-template-columns: 1fr 1fr } .tiles div { padding: 12px }
  .tiles div:last-child:nth-child(odd) { grid-column: 1 / -1 }
  /* The name of a row stays in sight while the rest of a wide table moves. */
  .scroll th:first-child, .scroll td:first-child { position: sticky; left: 0; background: var(--paper); max-width: 42vw; overflow-wrap: break-word; z-index: 1 }
  .compact th:first-child, .compact td:first-child { position: static; max-width: none }
  dd { font-size: 20px } td:not(.n) { white-space: normal; min-width: 5em } td, th { padding-right: 10px } .squares { max-width: 140px }
}
@media print {
  body { max-width: none; padding: 0; font-size: 10.5pt } header { padding-top: 0 } nav { display: none }
  h2, h3 { break-after: avoid } figure, tr, .tiles, .warning { break-inside: avoid }
  table { font-size: 8pt } th { font-size: 7.5pt } th, td { padding-right: 8px }
  td { white-space: normal } td:not(.n), th { overflow-wrap: anywhere } .scroll, pre { overflow: visible; background: none }
  details:not([open]):not(.item):not(.entry) { display: none } .tiles { grid-template-columns: repeat(4, 1fr) }
  dd { font-size: 15pt } * { -webkit-print-color-adjust: exact; print-color-adjust: exact }
}
)";
}

}  // namespace crest
