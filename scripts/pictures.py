#!/usr/bin/env python3
"""The pictures of the documents.

    pictures.py DIRECTORY < ROWS

Writes lifecycle.svg, timeline.svg and cutover.svg. ROWS are those of shard_split_lifecycle() that change a phase, as psql -At prints
from_phase, to_phase and condition: the picture of the lifecycle has what they say and nothing else.
"""

import pathlib
import sys
from xml.sax.saxutils import escape

STYLE = """
  text { font: 12px system-ui, sans-serif; fill: #24292f }
  .title { font-weight: 600; font-size: 13px } .small { font-size: 11px } .middle { text-anchor: middle } .right { text-anchor: end }
  .box { fill: #ddf4ff; stroke: #0969da } .end { fill: #dafbe1; stroke: #1a7f37 } .back { fill: #fff8c5; stroke: #9a6700 }
  .line { stroke: #57606a; fill: none; stroke-width: 1.5 } .dashed { stroke-dasharray: 4 3 } .wait { fill: #ffd8b5; stroke: #bc4c00 }
  .arrow { fill: #57606a }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .box { fill: #0c2d6b } .end { fill: #033a16 } .back { fill: #4b2900 } .wait { fill: #762d0a }
    .line { stroke: #9198a1 } .arrow { fill: #9198a1 }
  }
"""


class Picture:
    def __init__(self, width, height, label):
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-label="{escape(label)}">',
            f"<style>{STYLE}</style>",
            '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
            '<path class="arrow" d="M0 0 L8 4 L0 8 z"/></marker></defs>',
        ]

    def text(self, x, y, words, kind="middle"):
        self.parts.append(f'<text x="{x}" y="{y}" class="{kind}">{escape(words)}</text>')

    def box(self, x, y, width, height, kind, *lines):
        self.parts.append(f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="5" class="{kind}"/>')
        for number, line in enumerate(lines):
            middle = y + height / 2 + 4 + 14 * (number - (len(lines) - 1) / 2)
            self.text(x + width / 2, middle, line, "middle" if number == 0 else "middle small")

    def arrow(self, path, dashed=False):
        self.parts.append(f'<path class="line{" dashed" if dashed else ""}" d="{path}" marker-end="url(#head)"/>')

    def line(self, path):
        self.parts.append(f'<path class="line" d="{path}"/>')

    def write(self, path):
        path.write_text("\n".join(self.parts + ["</svg>"]) + "\n", encoding="utf-8")


def lifecycle(rows):
    """Phases from top to bottom in the order in which a split comes to them; what leads back stands on the right."""
    order = ["planning"]
    while following := [to for was, to, _ in rows if was == order[-1] and to not in order and to != "rolled_back"]:
        order.append(following[0])
    high, left, width = 72, 56, 150
    picture = Picture(660, high * len(order) + 10, "The phases of a split")
    at = {phase: 10 + high * number for number, phase in enumerate(order)}
    undone = [was for was, to, _ in rows if to == "rolled_back"]
    last = at[undone[-1]] + 38
    picture.box(530, at[order[0]], 110, last - at[order[0]], "back", "rolled_back")
    for phase in order:
        picture.box(left, at[phase], width, 38, "end" if phase == order[-1] else "box", phase)
    lane, again = 0, ""
    for was, to, condition in rows:
        if to == "rolled_back":
            picture.arrow(f"M{left + width} {at[was] + 10} H528", dashed=True)
        elif was == "rolled_back":
            middle = at[to] + 28
            picture.arrow(f"M530 {middle} H{left + width + 2}")
            picture.text((left + width + 530) / 2, middle + 13, condition, "middle small")
        elif at[to] > at[was]:
            picture.arrow(f"M{left + width / 2} {at[was] + 38} V{at[to] - 2}")
            picture.text(left + width / 2 + 8, at[was] + 58, condition, "small")
        elif was == order[-1]:
            picture.arrow(f"M{left + 24} {at[was]} V{at[to] + 40}", dashed=True)
        else:
            lane += 1
            x = left - 12 * lane
            picture.arrow(f"M{left} {at[was] + 19} H{x} V{at[to] + 14 + 6 * lane} H{left - 2}")
            again = condition
    x, y = left - 12 * lane - 8, at[order[3]] + 19
    picture.parts.append(f'<text transform="translate({x} {y}) rotate(-90)" class="middle small">{escape(again)}</text>')
    picture.text(left + width + 12, at[order[-1]] + 23, "then shard_split_finish, or shard_split_reverse", "small")
    return picture


def timeline():
    """Who writes where while a tenant moves."""
    picture = Picture(730, 250, "Who writes where while a split runs")
    steps = [("install", 90), ("copy", 170), ("follow", 110), ("cutover", 50), ("completed", 150), ("finish", 60)]
    x, bounds = 90, [90]
    for name, width in steps:
        picture.text(x + width / 2, 24, name, "middle title")
        x += width
        bounds.append(x)
    for label, y in (("clients", 60), ("source", 115), ("target", 170)):
        picture.text(80, y + 4, label, "title right")
    picture.box(bounds[0], 45, bounds[3] - bounds[0], 30, "box", "write to the source")
    picture.box(bounds[3], 45, bounds[4] - bounds[3], 30, "wait", "wait")
    picture.box(bounds[4], 45, bounds[6] - bounds[4], 30, "end", "write to the target")
    picture.box(bounds[1], 100, bounds[4] - bounds[1], 30, "box", "captures changed keys in a queue")
    picture.box(bounds[4], 100, bounds[6] - bounds[4], 30, "back", "refuses stale clients")
    picture.box(bounds[1], 155, bounds[4] - bounds[1], 30, "back", "guarded: only the mover writes")
    picture.box(bounds[4], 155, bounds[5] - bounds[4], 30, "end", "open, notes changes")
    picture.arrow(f"M{bounds[1] + 60} 130 V153")
    picture.text(bounds[1] + 66, 146, "rows, then changes", "small")
    picture.arrow(f"M{bounds[5] - 40} 155 V132", dashed=True)
    picture.text(bounds[5] - 36, 146, "reverse split", "small")
    picture.text((bounds[3] + bounds[4]) / 2, 205, "the decision, one commit on the master", "middle small")
    picture.line(f"M{(bounds[3] + bounds[4]) / 2} 190 V78")
    picture.text(365, 235, "verification compares both sides at any time after the copy", "middle small")
    return picture


def cutover():
    """The steps of a cutover, and on which server each is."""
    picture = Picture(700, 330, "The steps of a cutover")
    lanes = {"master": 150, "source": 370, "target": 590}
    for name, x in lanes.items():
        picture.text(x, 22, name, "middle title")
        picture.line(f"M{x} 30 V320")
    rows = [
        ("box", ["master", "source", "target"], "0  small lag, no old writer, sequences raised"),
        ("box", ["master"], "1  routes disabled"),
        ("wait", ["source"], "2  barrier locked: writers wait"),
        ("wait", ["source"], "3  state fenced"),
        ("wait", ["source", "target"], "4  last window, sequences"),
        ("end", ["master"], "5  the decision"),
        ("end", ["target"], "5b  state open: clients write"),
        ("end", ["source"], "6  state moved: SM001"),
    ]
    for number, (kind, where, words) in enumerate(rows):
        first, last = lanes[where[0]], lanes[where[-1]]
        picture.box(first - 100, 36 + 35 * number, last - first + 200, 26, kind, words)
    picture.text(18, 205, "set back", "small")
    picture.line("M8 36 V206")
    picture.text(18, 300, "only forward", "small")
    picture.line("M8 212 V310")
    return picture


def main():
    directory = pathlib.Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    rows = [line.split("|") for line in sys.stdin.read().splitlines() if line]
    for name, picture in (("lifecycle", lifecycle(rows)), ("timeline", timeline()), ("cutover", cutover())):
        picture.write(directory / f"{name}.svg")


if __name__ == "__main__":
    main()
