#!/usr/bin/env python3
"""Opens reports in headless Chromium as a phone, a tablet, a desktop and paper see them, light and dark, and looks for
what a reader would stumble over: a page wider than the screen, labels that overlap or leave their figure, empty figures,
text that is hard to read, errors, requests to elsewhere.

    python3 tests/tools/check_report.py report.html [--screenshots FOLDER]

Needs Chromium, its driver and Selenium (Debian: chromium chromium-driver python3-selenium). Exit codes: 0 fine, 1 faults
(one a line), 77 when the browser or Selenium is missing.
"""
import argparse
import base64
import pathlib
import shutil
import sys

# width, height, color scheme, medium
VIEWS = [
    (390, 844, "light", "screen"),
    (390, 844, "dark", "screen"),
    (800, 1100, "light", "screen"),
    (1280, 900, "light", "screen"),
    (1280, 900, "dark", "screen"),
    (720, 1000, "dark", "print"),  # the text width of A4; paper stays light
]

FAULTS = r"""
const faults = [], width = document.documentElement.clientWidth;
const say = text => faults.push(text);
const name = e => e.tagName.toLowerCase() + (e.className && e.className.baseVal === undefined ? '.' + e.className : '')
  + ' "' + (e.textContent || '').trim().slice(0, 40) + '"';
if (document.documentElement.scrollWidth > width + 1)
  say(`the page is ${document.documentElement.scrollWidth} px wide on a screen of ${width}`);
for (const e of document.body.querySelectorAll('*')) {
  if (e.closest('svg') && e.tagName !== 'svg') continue;
  if (e.closest('.scroll, pre') && !e.matches('.scroll, pre')) continue;
  const r = e.getBoundingClientRect();
  if (r.width > 0 && (r.right > width + 1 || r.left < -1)) say(`${name(e)} leaves the screen (${r.left.toFixed()} to ${r.right.toFixed()})`);
}
let figures = 0;
for (const svg of document.querySelectorAll('svg')) {
  const box = svg.getBoundingClientRect();
  if (box.width === 0) continue;
  ++figures;
  const label = '"' + (svg.getAttribute('aria-label') || '').slice(0, 50) + '"';
  if (!svg.getAttribute('aria-label')) say('a figure has no label');
  if (/NaN|Infinity|undefined/.test(svg.innerHTML)) say(`figure ${label} has numbers that are none`);
  const drawn = [...svg.querySelectorAll('rect, path, circle, line')].filter(e => {
    const r = e.getBoundingClientRect();
    return r.width > 0 || r.height > 0;
  });
  if (drawn.length < 3) say(`figure ${label} is empty`);
  for (const e of drawn) {
    const r = e.getBoundingClientRect();
    if (r.left < box.left - 2 || r.right > box.right + 2 || r.top < box.top - 2 || r.bottom > box.bottom + 2)
      say(`figure ${label}: a ${e.tagName} leaves it`);
  }
  const texts = [...svg.querySelectorAll('text')].map(e => ({text: e.textContent, r: e.getBoundingClientRect()}));
  for (const t of texts)
    if (t.r.left < box.left - 1 || t.r.right > box.right + 1 || t.r.top < box.top - 1 || t.r.bottom > box.bottom + 1)
      say(`figure ${label}: text "${t.text}" is cut off`);
  for (let i = 0; i < texts.length; ++i)
    for (let j = i + 1; j < texts.length; ++j) {
      const a = texts[i].r, b = texts[j].r;
      const x = Math.min(a.right, b.right) - Math.max(a.left, b.left), y = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (x > 1 && y > 2) say(`figure ${label}: texts "${texts[i].text}" and "${texts[j].text}" overlap by ${x.toFixed(1)} x ${y.toFixed(1)} px`);
    }
}
const parse = c => (c.match(/[\d.]+/g) || []).map(Number);
const light = ([r, g, b]) => {
  const f = v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  return 0.2126 * f(r) + 0.7152 * f(g) + 0.0722 * f(b);
};
const paper = e => {
  for (; e; e = e.parentElement) {
    const c = parse(getComputedStyle(e).backgroundColor);
    if (c.length === 3 || c[3] > 0) return c;
  }
  return [255, 255, 255];
};
const pale = new Set();
for (const e of document.querySelectorAll('p, li, td, th, dt, dd, summary, a, h1, h2, h3, figcaption, code, svg text')) {
  if (!e.getBoundingClientRect().width || /\bon\d/.test(e.getAttribute('class') || '')) continue;
  const css = getComputedStyle(e), ink = parse(e.closest('svg') ? css.fill : css.color);
  const [a, b] = [light(ink), light(paper(e))].sort((x, y) => y - x);
  if ((a + 0.05) / (b + 0.05) < 4.5) pale.add(name(e));
}
for (const e of [...pale].slice(0, 5)) say(`${e} has too little contrast`);
const elsewhere = [...document.querySelectorAll('[src], link[href], [*|href]')].map(e => e.getAttribute('src') || e.getAttribute('href') || '');
for (const url of elsewhere) if (url && !url.startsWith('#')) say(`refers to ${url}`);
for (const r of performance.getEntriesByType('resource')) say(`requested ${r.name}`);
if (document.documentElement.lang !== 'en' || !document.querySelector('meta[name=viewport]') || document.characterSet !== 'UTF-8')
  say('language, viewport or encoding is missing');
if (!document.title || document.querySelectorAll('h1').length !== 1) say('there must be one title');
const ids = [...document.querySelectorAll('[id]')].map(e => e.id);
if (new Set(ids).size !== ids.length) say('ids are not unique');
for (const a of document.querySelectorAll('a[href^="#"]'))
  if (!document.getElementById(a.getAttribute('href').slice(1))) say(`no target for ${a.getAttribute('href')}`);
return [figures, faults];
"""


def missing(what):
    print(f"skipped: {what} is missing (Debian: apt-get install chromium chromium-driver python3-selenium)")
    sys.exit(77)


def open_browser():
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if not chromium:
        missing("Chromium")
    driver = shutil.which("chromedriver")
    if not driver:
        missing("Chromium's driver")
    try:
        from selenium import webdriver
        from selenium.webdriver.chrome.options import Options
        from selenium.webdriver.chrome.service import Service
    except ImportError:
        missing("Selenium")
    options = Options()
    options.binary_location = chromium
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(service=Service(driver), options=options)


def check(browser, file, screenshots):
    faults, figures = [], 0
    for width, height, scheme, medium in VIEWS:
        view = f"{width} px, {scheme}, {medium}"
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                                {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False})
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {
            "media": medium, "features": [{"name": "prefers-color-scheme", "value": scheme}]})
        browser.get(file.resolve().as_uri())
        figures, found = browser.execute_script(FAULTS)
        opened = browser.execute_script("document.querySelectorAll('details').forEach(d => d.open = true);" + FAULTS)[1]
        faults += [f"{view}: {text}" for text in found]
        faults += [f"{view}, all opened: {text}" for text in opened if text not in found]
        faults += [f"{view}: console: {entry['message']}" for entry in browser.get_log("browser")]
        if screenshots:
            browser.execute_script("document.querySelectorAll('details').forEach(d => d.open = false)")
            size = browser.execute_cdp_cmd("Page.getLayoutMetrics", {})["cssContentSize"]
            shot = browser.execute_cdp_cmd("Page.captureScreenshot", {
                "captureBeyondViewport": True,
                "clip": {"x": 0, "y": 0, "width": width, "height": min(size["height"], 16000), "scale": 1}})
            name = f"{file.stem}-{width}-{scheme}-{medium}.png"
            (screenshots / name).write_bytes(base64.b64decode(shot["data"]))
    return figures, faults


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reports", nargs="+", type=pathlib.Path)
    parser.add_argument("--screenshots", type=pathlib.Path)
    parser.add_argument("--figures", type=int, default=0, help="figures that there must be at least")
    arguments = parser.parse_args()
    if arguments.screenshots:
        arguments.screenshots.mkdir(parents=True, exist_ok=True)
    browser = open_browser()
    bad = False
    try:
        for file in arguments.reports:
            figures, faults = check(browser, file, arguments.screenshots)
            if figures < arguments.figures:
                faults.append(f"{figures} figures, {arguments.figures} were expected")
            for fault in dict.fromkeys(faults):
                print(f"{file}: {fault}")
            print(f"{file}: {figures} figures, {len(faults)} faults in {len(VIEWS)} views")
            bad = bad or bool(faults)
    finally:
        browser.quit()
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
