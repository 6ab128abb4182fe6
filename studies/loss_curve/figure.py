"""The study's figure: loss curves, and their differences to the mean of PyTorch's repeats at two scales. Inline SVG."""
import math
from xml.sax.saxutils import escape

import numpy as np

WIDTH, LEFT, RIGHT = 860, 84, 24
STYLE = """<style>
text { font: 13px system-ui, sans-serif; fill: #5c6670 }
.title { font-size: 16px; font-weight: 600; fill: #1c2126 } .panel { font-weight: 600; fill: #1c2126 }
.paper { fill: #ffffff } .grid { stroke: #e3e7eb } .band { fill: #5c6670; fill-opacity: 0.13 }
path { fill: none; stroke-width: 1.6; stroke-linejoin: round }
.crest0 { stroke: #d55e00; stroke-width: 2.2 } .crest1 { stroke: #0072b2; stroke-width: 2.2 }
.repeat { stroke: #5c6670 } .other { stroke: #009e73 } .shuffled { stroke: #b0578d; stroke-dasharray: 3 3 }
@media (prefers-color-scheme: dark) {
text { fill: #a3adb7 } .title, .panel { fill: #e8ebee } .paper { fill: #15191d } .grid { stroke: #333a42 }
.crest0 { stroke: #ff9b52 } .crest1 { stroke: #56b4e9 } .repeat { stroke: #a3adb7 } .other { stroke: #3fd0a4 }
.shuffled { stroke: #e39ac4 } .band { fill: #a3adb7 } }
</style>"""


def ticks(low, high, count=5):
    raw = (high - low) / count
    step = 10 ** math.floor(math.log10(raw))
    step = next(step * f for f in (1, 2, 5, 10) if step * f >= raw)
    first = math.ceil(low / step - 1e-9)
    return [k * step for k in range(first, int(math.floor(high / step + 1e-9)) + 1)]


def number(value, step):
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    return f"{value:.{digits}f}" if abs(value) > step / 2 else "0"


class Panel:
    def __init__(self, top, height, x, y, title, y_label):
        self.top, self.bottom, self.x, self.y = top, top + height, x, y
        self.parts = [f'<text class="panel" x="{LEFT}" y="{top - 10}">{escape(title)}</text>',
                      f'<text transform="translate(18 {top + height / 2}) rotate(-90)" text-anchor="middle">'
                      f'{escape(y_label)}</text>']
        marks = ticks(*y)
        for value in marks:
            at = self.place_y(value)
            self.parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>'
                              f'<text x="{LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">'
                              f'{number(value, marks[1] - marks[0])}</text>')
        for value in ticks(*x, 8):
            self.parts.append(f'<text x="{self.place_x(value):.1f}" y="{self.bottom + 18}" text-anchor="middle">'
                              f'{value:.0f}</text>')

    def place_x(self, value):
        return LEFT + (value - self.x[0]) / (self.x[1] - self.x[0]) * (WIDTH - LEFT - RIGHT)

    def place_y(self, value):
        share = (min(max(value, self.y[0]), self.y[1]) - self.y[0]) / (self.y[1] - self.y[0])
        return self.bottom - share * (self.bottom - self.top)

    def band(self, half):
        top, bottom = self.place_y(half), self.place_y(-half)
        self.parts.append(f'<rect class="band" x="{LEFT}" y="{top:.1f}" width="{WIDTH - LEFT - RIGHT}" '
                          f'height="{bottom - top:.1f}"/>')

    def line(self, style, xs, ys):
        points = "L".join(f"{self.place_x(x):.1f} {self.place_y(y):.1f}" for x, y in zip(xs, ys))
        self.parts.append(f'<path class="{style}" d="M{points}"/>')


def draw(curves, size, result, title):
    """curves: of compare.py; drawn PyTorch first, so that Crest lies on top."""
    crest = [c for c in curves if c.kind == "crest"]
    style = {c: f"crest{crest.index(c) % 2}" if c in crest else c.kind for c in curves}
    shown = sorted(curves, key=lambda c: c in crest)
    center = np.mean([c.windows(size) for c in curves if c.kind == "repeat"], axis=0)
    xs = (np.arange(len(center)) + 0.5) * size
    x = (0, len(center) * size)
    losses = np.concatenate([c.windows(size) for c in curves])
    near = [np.abs(c.windows(size) - center).max() for c in curves if c.kind in ("crest", "repeat")]
    far = [np.abs(c.windows(size) - center).max() for c in curves if c.kind != "shuffled"]
    top = 84 + 20 * math.ceil(len(curves) / 3)
    panels = [Panel(top, 250, x, (losses.min() - 0.1, losses.max() + 0.1), f"Loss, mean of {size} steps",
                    "cross-entropy (nats per token)"),
              Panel(top + 320, 190, x, (-1.1 * max(far), 1.1 * max(far)),
                    "Difference to the mean of PyTorch's repeats (band: spread of initial weights)", "nats per token"),
              Panel(top + 580, 190, x, (-1.15 * max(near), 1.15 * max(near)),
                    "The same, enlarged (band: twice the spread of repeats)", "nats per token")]
    if result["weights_spread"] is not None:
        panels[1].band(result["weights_spread"])
    panels[2].band(min(2 * result["repeat_spread"], 1.15 * max(near)))
    for c in shown:
        panels[0].line(style[c], xs, c.windows(size))
        if c.kind != "shuffled":
            panels[1].line(style[c], xs, c.windows(size) - center)
        if c.kind in ("crest", "repeat"):
            panels[2].line(style[c], xs, c.windows(size) - center)
    height = panels[-1].bottom + 52
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
             f'aria-label="{escape(title)}">', STYLE, f'<rect class="paper" width="{WIDTH}" height="{height}"/>',
             f'<text class="title" x="{LEFT}" y="30">{escape(title)}</text>']
    for i, c in enumerate(curves):
        at_x, at_y = LEFT + i % 3 * 252, 54 + i // 3 * 20
        parts.append(f'<path class="{style[c]}" d="M{at_x} {at_y - 4}h26"/>'
                     f'<text x="{at_x + 34}" y="{at_y}">{escape(c.name)}</text>')
    for panel in panels:
        parts += panel.parts
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(f'<text x="{middle}" y="{height - 14}" text-anchor="middle">step</text></svg>')
    return "\n".join(parts) + "\n"
